"use strict";
/* The page of a training. */
const FOLLOW_SECONDS = 8, SILENCE_SECONDS = 900;
let shownAt = null; /* the step of the slider; null follows the newest picture */
let shownView = null, shownPanel = "rendering", split = null;
let mesh = null, meshStep = null;

function statusPart() {
  const { step, end, seconds, state } = DATA.status;
  const share = end > 0 ? Math.min(1, step / end) : 0;
  const rate = DATA.status.session_seconds > 0 ? DATA.status.session_steps / DATA.status.session_seconds : 0;
  const left = state === "training" && rate > 0 ? duration((end - step) / rate) : null;
  const fact = (key, value) => value === null ? null : el("span", {}, `${t(key)} `, el("b", {}, value));
  return el("section", { id: "status" },
    el("div", { class: "facts" }, el("b", { id: "state" }, t("state_" + state)), fact("step", `${step} / ${end}`), fact("elapsed", duration(seconds)),
      left === null ? null : fact("left", left), fact("psnr_held_out", heldOutPsnr())),
    el("div", { class: "progress" }, el("div", { style: `width:${100 * share}%` })),
    el("div", { class: "soft" }, `${t("updated")} ${new Date(DATA.status.updated * 1000).toLocaleString(LANGUAGE === "zh" ? "zh-CN" : "en")}`,
      state !== "training" ? "" : Date.now() / 1000 - DATA.status.updated > SILENCE_SECONDS ? ` · ${t("silent")}` : ` · ${t("follows")}`));
}

/* The PSNR of the table of metrics that counts first; null before an evaluation. */
function heldOutPsnr() {
  const values = Object.fromEntries(DATA.figures);
  return values[`PSNR, ${values["primary metrics"]}`] ?? null;
}

function viewChoice(views) {
  if (views.length < 2) return null;
  const choice = el("select", { id: "view", "aria-label": t("view"), onchange: (event) => { shownView = event.target.value; draw(); } },
    ...views.map((shown) => el("option", { value: shown.view }, `${shown.name} (${t(groupOf(shown))})`)));
  choice.value = shownView;
  return el("div", { class: "tools" }, el("label", {}, t("view"), choice));
}

function picturesPart() {
  if (!DATA.pictures.length) return section("pictures", note(whyNoPictures(DATA)));
  const views = [...new Map(DATA.pictures.map((shown) => [String(shown.view), shown])).values()];
  const ofView = (view) => DATA.pictures.filter((shown) => String(shown.view) === view);
  if (!views.some((shown) => String(shown.view) === shownView)) /* at first the view with the most steps */
    shownView = views.map((shown) => String(shown.view)).reduce((most, view) => ofView(view).length >= ofView(most).length ? view : most);
  const pictures = ofView(shownView);
  if (!split) split = new SplitView();
  const panels = el("div", { class: "panels" }), told = el("p", { class: "note", id: "told" });
  const show = (at) => {
    shownAt = at === pictures.length - 1 ? null : pictures[at].step;
    const shown = pictures[at], photograph = DATA.photographs[shown.view];
    const order = ["rendering", "photograph", "normals", "error", "distance"].map((name) => [name, name === "photograph" ? photograph : shown.panels[name]]);
    if (!shown.panels[shownPanel]) shownPanel = "rendering";
    const pick = (name) => { shownPanel = name; show(at); };
    panels.replaceChildren(...order.filter(([, uri]) => uri).map(([name, uri]) => el("figure", name === "photograph" ? {} : {
      role: "button", tabindex: 0, "aria-pressed": name === shownPanel, onclick: () => pick(name), onkeydown: (event) => { if (event.key === "Enter") pick(name); },
    }, el("img", { src: uri, alt: t(name), "data-panel": name }), el("figcaption", {}, t(name)))));
    split.show([shown.panels[shownPanel], t(shownPanel)], [photograph, t("photograph")]);
    told.textContent = [`${t("step")} ${shown.step}`, `${shown.name} (${t(groupOf(shown))})`, measured("PSNR", shown.psnr, "dB"), measured("SSIM", shown.ssim),
      measured(`PSNR ${t("inside")}`, shown.psnr_mask, "dB"), measured("IoU", shown.iou)].filter(Boolean).join(" · ");
  };
  const place = pictures.findIndex((shown) => shown.step === shownAt);
  const bar = slider("steps", pictures.map((shown) => `${t("step")} ${shown.step}`), place < 0 ? pictures.length - 1 : place, show);
  return section("pictures", viewChoice(views), pictures.length > 1 ? bar : null, told, split.node, split.tools, panels);
}

function meshPart() {
  if (!DATA.mesh) return section("mesh", note(whyNoMesh(DATA)));
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
  const groups = [["losses", "", take((name) => name.startsWith("Loss/"))], ["psnr_batch", "dB", take((name) => /psnr$/.test(name))],
    ["inv_s", "", columns.inv_s ? { inv_s: columns.inv_s } : {}], ["rate", "", take((name) => name === "Statistics/learning_rate")],
    ["speed", "", take((name) => name === "speed")], ["memory", "GB", take((name) => name === "memory")], ["time", "s", take((name) => name === "seconds")]];
  const known = new Set(groups.flatMap(([, , series]) => Object.keys(series)));
  const rest = take((name) => name.startsWith("Statistics/") && !known.has(name));
  const found = groups.map(([key, unit, series]) => chart(key, unit, steps, series));
  if (pictures.length) found.splice(2, 0, chart("psnr_picture", "dB", [...new Set(pictures.map((shown) => shown.step))], psnrOf(pictures)));
  found.push(...Object.entries(rest).map(([name, column]) => chart(name.replace("Statistics/", ""), "", steps, { [name]: column })));
  return section("curves", ...charts(found));
}

/* The PSNR of each view over the steps of any of them. */
function psnrOf(pictures) {
  const steps = [...new Set(pictures.map((shown) => shown.step))];
  const names = new Map(pictures.map((shown) => [shown.view, shown.name]));
  const at = (view, step) => { const found = pictures.find((shown) => shown.view === view && shown.step === step); return found ? found.psnr : null; };
  return Object.fromEntries([...names].map(([view, name]) => [name, steps.map((step) => at(view, step))]));
}

/* Files beside the page, by their paths from its folder. */
function filesPart() {
  if (!(DATA.files || []).length) return null;
  const link = (path) => el("a", { href: path.split("/").map(encodeURIComponent).join("/") }, path);
  return section("files", table(["", ""], DATA.files.map(([what, path]) => [what, link(path)])), note(t("files_beside")));
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
  const count = DATA.warnings.length;
  const sections = [picturesPart(), meshPart(), curvesPart(),
    section("scene", table(["", ""], DATA.scene.facts), ...DATA.scene.notes.map((text) => note(text)), DATA.overview ? el("img", { class: "wide", src: DATA.overview, alt: t("scene") }) : null),
    section("plan", table(["", ""], DATA.plan)),
    section("figures", DATA.figures.length ? table(["", ""], DATA.figures) : note(t("figures_none"))),
    filesPart(), section("warnings", warnings), confPart(), section("environment", table(["", ""], DATA.environment))].filter(Boolean);
  const alarm = count ? el("a", { class: "alarm", id: "warning_count", href: "#warnings" }, `⚠ ${count} ${t(count === 1 ? "warning_one" : "warning_many")}`) : null;
  document.getElementById("page").replaceChildren(
    el("header", {}, el("h1", {}, DATA.title), el("span", { class: "soft" }, DATA.about), alarm, themeButton(draw), languageButton(draw)),
    menu(sections), statusPart(), ...sections);
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
