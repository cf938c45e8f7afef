"use strict";
/* Several runs beside each other: the slider of one moves those of all, and so does a turn of its mesh. */
let panel = "rendering", place = null, views = null;

function stepsOf(run) {
  return (run.pictures || []).map((shown) => shown.step);
}

function nearest(steps, step) {
  let best = 0;
  steps.forEach((value, at) => { if (Math.abs(value - step) < Math.abs(steps[best] - step)) best = at; });
  return best;
}

function picturesPart() {
  const runs = DATA.runs;
  if (place === null) place = Math.max(0, ...runs.flatMap(stepsOf));
  const moved = [];
  const move = (step) => { place = step; moved.forEach((follow) => follow(step)); };
  const figures = runs.map((run, at) => {
    const steps = stepsOf(run);
    if (!steps.length) return el("figure", {}, el("b", {}, DATA.names[at]), note(whyNoPictures(run)));
    const image = el("img", { class: "wide", alt: DATA.names[at], "data-run": at }), told = el("figcaption", {});
    const show = (index) => {
      const shown = run.pictures[index];
      const uri = panel === "photograph" ? run.photographs[shown.view] : shown.panels[panel];
      if (uri) image.src = uri; else image.removeAttribute("src");
      told.textContent = [`${t("step")} ${shown.step}`, `${shown.name} (${t(groupOf(shown))})`, measured("PSNR", shown.psnr, "dB")].filter(Boolean).join(" · ");
    };
    const bar = slider(`steps-${at}`, steps.map((step) => `${t("step")} ${step}`), nearest(steps, place), show);
    const [input, output] = bar.children;
    input.addEventListener("input", () => move(steps[input.value]));
    moved.push((step) => { input.value = nearest(steps, step); output.textContent = `${t("step")} ${steps[input.value]}`; show(Number(input.value)); });
    return el("figure", {}, el("b", {}, DATA.names[at]), bar, image, told);
  });
  const panels = !runs.some((run) => stepsOf(run).length) ? [] : ["rendering", "photograph", "normals", "error", "distance"].map((name) =>
    el("button", { id: `panel-${name}`, "aria-pressed": name === panel, onclick: () => { panel = name; draw(); } }, t(name)));
  return section("pictures", el("div", { class: "buttons", style: "margin: 0 0 10px" }, ...panels), el("div", { class: "runs" }, ...figures));
}

function meshPart() {
  if (!views) {
    views = DATA.runs.map((run) => run.mesh ? meshView(run.mesh, run.up, run.front) : { reason: () => note(whyNoMesh(run)) });
    const shown = views.map((found) => found.view).filter(Boolean);
    for (const view of shown) {
      view.canvas.addEventListener("pointermove", () => {
        if (!view.pointers.size) return;
        for (const other of shown) if (other !== view) Object.assign(other, { turn: view.turn, tilt: view.tilt, isTurning: false, dirty: true });
        views.forEach((found) => found.redraw && found.redraw());
      });
    }
  }
  views.forEach((found) => found.redraw && found.redraw());
  const cells = views.map((found, at) => el("div", {}, el("b", {}, DATA.names[at]), found.node || found.reason(),
    DATA.runs[at].mesh ? note(`${t("step")} ${DATA.runs[at].mesh.step} · ${DATA.runs[at].mesh.whole} ${t("triangles")}`) : null));
  return section("mesh", el("div", { class: "runs" }, ...cells), DATA.runs.some((run) => run.mesh) ? note(t("drag")) : null);
}

/* A curve of all runs over the steps of any of them. */
function together(key, unit, name) {
  const columns = DATA.runs.map((run) => (run.curves && run.curves[name]) ? new Map(run.curves.step.map((step, at) => [step, run.curves[name][at]])) : new Map());
  const steps = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
  if (!steps.length) return null;
  return chart(key, unit, steps, Object.fromEntries(columns.map((column, at) => [DATA.names[at], steps.map((step) => column.has(step) ? column.get(step) : null)])));
}

function draw() {
  document.documentElement.lang = LANGUAGE;
  const found = [together("losses", "", "Loss/loss"), together("psnr_batch", "dB", "Statistics/psnr"), together("inv_s", "", "inv_s"),
    together("time", "s", "seconds"), together("memory", "GB", "memory")].filter(Boolean);
  const sections = [picturesPart(), meshPart(),
    section("figures", table(["", ...DATA.names], DATA.figures, false, DATA.best), DATA.best.some((row) => row.length) ? note(t("best_note")) : null),
    section("differs", DATA.differs.length ? table(["key", ...DATA.names], DATA.differs, true) : note(t("differs_none"))),
    section("curves", ...(found.length ? charts(found) : [note(t("curves_soon"))]))];
  document.getElementById("page").replaceChildren(el("header", {}, el("h1", {}, t("compare")), themeButton(draw), languageButton(draw)), menu(sections), ...sections);
}

draw();
