"use strict";
/* The page of a training. */
const FOLLOW_SECONDS = 8, SILENCE_SECONDS = 900;
let shownAt = null; /* the index of the slider; null follows the newest picture */
let mesh = null, meshStep = null;

function statusPart() {
  const { step, end, seconds, state } = DATA.status;
  const share = end > 0 ? Math.min(1, step / end) : 0;
  const rate = DATA.status.session_seconds > 0 ? DATA.status.session_steps / DATA.status.session_seconds : 0;
  const left = state === "training" && rate > 0 ? duration((end - step) / rate) : null;
  const last = DATA.pictures[DATA.pictures.length - 1];
  const fact = (key, value) => value === null ? null : el("span", {}, `${t(key)} `, el("b", {}, value));
  return el("section", { id: "status" },
    el("div", { class: "facts" }, el("b", { id: "state" }, t("state_" + state)), fact("step", `${step} / ${end}`), fact("elapsed", duration(seconds)),
      left === null ? null : fact("left", left), last && last.psnr !== null ? fact("psnr_picture", `${last.psnr.toFixed(2)} dB`) : null),
    el("div", { class: "progress" }, el("div", { style: `width:${100 * share}%` })),
    el("div", { class: "soft" }, `${t("updated")} ${new Date(DATA.status.updated * 1000).toLocaleString(LANGUAGE === "zh" ? "zh-CN" : "en")}`,
      state !== "training" ? "" : Date.now() / 1000 - DATA.status.updated > SILENCE_SECONDS ? ` · ${t("silent")}` : ` · ${t("follows")}`));
}

function picturesPart() {
  if (!DATA.pictures.length) return section("pictures", note(DATA.status.val_freq > 0 ? `${t("pictures_soon")} ${Math.min(DATA.status.val_freq, DATA.status.end)}` : t("pictures_none")));
  const panels = el("div", { class: "panels" }), told = el("p", { class: "note", id: "told" });
  const show = (at) => {
    shownAt = at === DATA.pictures.length - 1 ? null : at;
    const shown = DATA.pictures[at];
    const order = [["rendering", shown.panels.rendering], ["photograph", DATA.photographs[shown.view]], ["normals", shown.panels.normals],
      ["error", shown.panels.error], ["distance", shown.panels.distance]];
    panels.replaceChildren(...order.filter(([, uri]) => uri).map(([name, uri]) =>
      el("figure", {}, el("img", { src: uri, alt: t(name), "data-panel": name }), el("figcaption", {}, t(name)))));
    const figures = [["PSNR", shown.psnr, " dB"], ["SSIM", shown.ssim, ""], [`PSNR ${t("inside")}`, shown.psnr_mask, " dB"], ["IoU", shown.iou, ""]];
    told.textContent = [`${t("step")} ${shown.step}, ${shown.name}`, ...figures.filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value, unit]) => `${name} ${short(value)}${unit}`)].join(" · ");
  };
  const labels = DATA.pictures.map((shown) => `${t("step")} ${shown.step}`);
  const at = shownAt === null ? labels.length - 1 : Math.min(shownAt, labels.length - 1);
  return section("pictures", slider("steps", labels, at, show), panels, told);
}

function meshPart() {
  if (!DATA.mesh) return section("mesh", note(DATA.mesh_words ? DATA.mesh_words : t(DATA.status.mesh)));
  if (!mesh) mesh = meshView(DATA.mesh, DATA.up, DATA.front, DATA.cameras);
  else if (mesh.view && meshStep !== DATA.mesh.step) mesh.view.show(DATA.mesh);
  if (mesh.redraw) mesh.redraw();
  meshStep = DATA.mesh.step;
  const thin = DATA.mesh.whole > DATA.mesh.triangles ? `, ${t("thinned")} ${DATA.mesh.whole}` : "";
  return section("mesh", mesh.node, note(`${t("step")} ${DATA.mesh.step} · ${DATA.mesh.triangles} ${t("triangles")}${thin} · ${t("drag")}`));
}

function curvesPart() {
  const { step: steps, ...columns } = DATA.curves;
  if (!steps || !steps.length) return section("curves", note(t("curves_soon")));
  const take = (test) => Object.fromEntries(Object.entries(columns).filter(([name]) => test(name)));
  const pictures = DATA.pictures.filter((shown) => shown.psnr !== null);
  const groups = [["losses", take((name) => name.startsWith("Loss/"))], ["psnr_batch", take((name) => /psnr$/.test(name))],
    ["inv_s", columns.inv_s ? { inv_s: columns.inv_s } : {}], ["rate", take((name) => name === "Statistics/learning_rate")],
    ["speed", take((name) => name === "speed")], ["memory", take((name) => name === "memory")], ["time", take((name) => name === "seconds")]];
  const known = new Set(groups.flatMap(([, series]) => Object.keys(series)));
  const rest = take((name) => name.startsWith("Statistics/") && !known.has(name));
  const charts = groups.map(([key, series]) => chart(t(key), steps, series));
  if (pictures.length) charts.splice(2, 0, chart(t("psnr_picture"), pictures.map((shown) => shown.step), { psnr: pictures.map((shown) => shown.psnr) }));
  charts.push(...Object.entries(rest).map(([name, column]) => chart(name.replace("Statistics/", ""), steps, { [name]: column })));
  return section("curves", el("div", { class: "charts" }, ...charts));
}

function confPart() {
  const differs = DATA.conf.differs, all = DATA.conf.all;
  return section("conf", differs.length ? table(["key", "base_value", "this_value"], differs, true) : note(t("conf_same")),
    el("details", {}, el("summary", {}, `${t("conf_all")} (${all.length})`), table(["key", "this_value"], all, true)));
}

function draw() {
  document.documentElement.lang = LANGUAGE;
  const kept = document.querySelector("#conf details");
  const isOpen = kept && kept.open, focus = document.activeElement && document.activeElement.id;
  const warnings = DATA.warnings.length ? el("ul", { class: "warnings" }, ...DATA.warnings.map((text) => el("li", {}, ...warning(text)))) : note(t("warnings_none"));
  document.getElementById("page").replaceChildren(
    el("header", {}, el("h1", {}, DATA.title), el("span", { class: "soft" }, DATA.about), languageButton(draw)),
    statusPart(), picturesPart(), meshPart(), curvesPart(),
    section("scene", table(["", ""], DATA.scene.facts, true), ...DATA.scene.notes.map((text) => note(text)), DATA.overview ? el("img", { class: "wide", src: DATA.overview, alt: t("scene") }) : null),
    section("figures", DATA.figures.length ? table(["", ""], DATA.figures) : note(t("figures_none"))),
    section("warnings", warnings), confPart(), section("environment", table(["", ""], DATA.environment)));
  if (isOpen) document.querySelector("#conf details").open = true;
  if (focus && document.getElementById(focus)) document.getElementById(focus).focus();
}

/* While the training runs, the page loads itself unseen and takes over what is new. */
function follow() {
  if (DATA.status.state !== "training") return;
  const again = () => setTimeout(follow, FOLLOW_SECONDS * 1000);
  if (document.hidden) { again(); return; }
  const frame = el("iframe", { name: "probe", style: "display:none" });
  const done = () => { clearTimeout(late); window.removeEventListener("message", hear); frame.remove(); again(); };
  const hear = (event) => {
    if (event.source !== frame.contentWindow || !event.data || !event.data.report) return;
    const fresh = JSON.parse(event.data.report);
    if (fresh.status && fresh.status.updated !== DATA.status.updated) {
      const place = window.scrollY;
      DATA = fresh;
      draw();
      window.scrollTo(0, place);
    }
    done();
  };
  const late = setTimeout(done, 20000);
  window.addEventListener("message", hear);
  frame.src = `${location.href.split(/[?#]/)[0]}?probe=${Date.now()}`;
  document.body.append(frame);
}

draw();
setTimeout(follow, FOLLOW_SECONDS * 1000);
