"use strict";
/* Charts of curves over steps: logarithmic or linear, smoothed, with curves that the legend hides. */
const CURVE_COLOURS = 8, LOG_SPAN = 100; /* colours of page.css; a ratio from which an axis begins logarithmic */
const SVG = "http://www.w3.org/2000/svg";
const chartChoices = new Map(); /* by chart: { isLog, hidden }, which outlast a redraw */
let smoothing = 0; /* of all charts: the share of the past in a running mean, in [0, 1) */

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function ticksOf(low, high, isLog) {
  if (isLog) {
    const found = [];
    for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power++) found.push(power);
    if (found.length >= 2) return found.filter((_, at) => at % Math.ceil(found.length / 4) === 0);
  }
  /* The widest step with three ticks: two may lie beside each other at one end. */
  const power = 10 ** Math.floor(Math.log10(high - low || 1));
  const counted = (step) => Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
  const step = [5, 2, 1, 0.5, 0.2, 0.1].map((factor) => factor * power).find((wide) => counted(wide) >= 3);
  const from = Math.ceil(low / step - 1e-9);
  return Array.from({ length: counted(step) }, (_, at) => (from + at) * step);
}

/* Running mean whose weights sum to one from the first value on; null stays null. */
function smoothed(values, share) {
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = share * sum + (1 - share) * value;
    weight = share * weight + 1 - share;
    return sum / weight;
  });
}

/* Whether an axis begins logarithmic: nearly all values are positive and they span two decades. */
function suitsLog(values) {
  const positive = values.filter((value) => value > 0);
  return positive.length > 0.8 * values.length && values.every((value) => value >= 0) && Math.max(...positive) / Math.min(...positive) > LOG_SPAN;
}

/* The lowest and the highest of scaled values, apart from each other. */
function rangeOf(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const margin = high - low < 1e-9 * Math.max(1, Math.abs(high)) ? 0.5 * Math.max(1e-6, Math.abs(high)) : 0;
  return [low - margin, high + margin];
}

/* Curves over `steps`; `series` is name -> values, null where there is none. A logarithmic axis leaves out what is not positive. */
function chart(key, unit, steps, series) {
  const names = Object.keys(series).filter((name) => series[name].some((value) => value !== null));
  if (!names.length) return null;
  if (!chartChoices.has(key)) chartChoices.set(key, { isLog: suitsLog(names.flatMap((name) => series[name]).filter((value) => value !== null)), hidden: new Set() });
  const choice = chartChoices.get(key), root = el("div", { class: "chart", "data-chart": key });
  const redraw = () => root.replaceChildren(...chartParts(unit ? `${t(key)} (${t(unit)})` : t(key), steps, series, names, choice, redraw));
  root.redraw = redraw;
  redraw();
  return root;
}

function chartParts(title, steps, series, names, choice, redraw) {
  const width = 380, height = 190, left = 52, right = 10, top = 8, bottom = 22;
  const colour = (name) => `var(--curve-${names.indexOf(name) % CURVE_COLOURS})`;
  const scaled = (value) => choice.isLog ? Math.log10(value) : value;
  const isDrawn = (value) => value !== null && (!choice.isLog || value > 0);
  const shown = names.filter((name) => !choice.hidden.has(name));
  const soft = Object.fromEntries(names.map((name) => [name, smoothed(series[name], smoothing)]));
  const values = shown.flatMap((name) => series[name]).filter(isDrawn).map(scaled);
  const [low, high] = values.length ? rangeOf(values) : [0, 1];
  const first = steps[0], last = steps[steps.length - 1];
  const x = (step) => left + (width - left - right) * (last > first ? (step - first) / (last - first) : 0.5);
  const y = (at) => top + (height - top - bottom) * (1 - (at - low) / (high - low));
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const tick of values.length ? ticksOf(low, high, choice.isLog) : []) {
    root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    root.append(svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, short(choice.isLog ? 10 ** tick : tick)));
  }
  for (const [step, anchor] of last > first ? [[first, "start"], [last, "end"]] : [[first, "middle"]])
    root.append(svg("text", { x: x(step), y: height - 6, "text-anchor": anchor }, step));
  const draw = (name, column, opacity) => {
    const points = steps.map((step, i) => isDrawn(column[i]) ? [x(step).toFixed(1), y(scaled(column[i])).toFixed(1)] : null).filter(Boolean);
    if (points.length === 1) root.append(svg("circle", { cx: points[0][0], cy: points[0][1], r: 3, style: `fill:${colour(name)}` }));
    else if (points.length) root.append(svg("polyline", { points: points.join(" "), fill: "none", "stroke-width": 1.6, style: `stroke:${colour(name)};opacity:${opacity}` }));
  };
  for (const name of shown) {
    if (smoothing > 0) draw(name, series[name], 0.25);
    draw(name, soft[name], 1);
  }
  const marker = svg("line", { class: "marker", y1: top, y2: height - bottom, x1: x(last), x2: x(last), visibility: "hidden" });
  root.append(marker);
  const numbers = names.map(() => el("span")), place = el("span");
  const tell = (index) => {
    names.forEach((name, at) => { numbers[at].textContent = short(soft[name].slice(0, index + 1).findLast((value) => value !== null)); });
    place.textContent = `${t("step")} ${steps[index]}`;
  };
  const entries = names.map((name, at) => {
    const swatch = el("span", { class: "swatch", style: `background:${colour(name)}` });
    if (names.length === 1) return el("span", {}, swatch, numbers[at]);
    const toggle = () => { if (!choice.hidden.delete(name)) choice.hidden.add(name); redraw(); };
    return el("button", { "data-curve": name, "aria-pressed": !choice.hidden.has(name), onclick: toggle }, swatch, `${t(name.replace(/^(Loss|Statistics)\//, ""))} `, numbers[at]);
  });
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * width;
    let best = 0;
    steps.forEach((step, i) => { if (Math.abs(x(step) - at) < Math.abs(x(steps[best]) - at)) best = i; });
    for (const side of ["x1", "x2"]) marker.setAttribute(side, x(steps[best]));
    marker.setAttribute("visibility", "visible");
    tell(best);
  });
  root.addEventListener("pointerleave", () => { marker.setAttribute("visibility", "hidden"); tell(steps.length - 1); });
  tell(steps.length - 1);
  const axis = el("button", { class: "axis", title: t("axis"), onclick: () => { choice.isLog = !choice.isLog; redraw(); } }, t(choice.isLog ? "axis_log" : "axis_linear"));
  const canBeLog = shown.some((name) => series[name].some((value) => value > 0));
  return [el("div", { class: "head" }, el("h3", {}, title), canBeLog || choice.isLog ? axis : null), root, el("div", { class: "legend" }, ...entries, place)];
}

/* Charts beside each other, with one slider that smooths them all. */
function charts(found) {
  const shown = found.filter(Boolean);
  const output = el("output", {}, smoothing);
  const input = el("input", { type: "range", id: "smoothing", min: 0, max: 0.98, step: 0.02 });
  input.value = smoothing;
  input.addEventListener("input", () => { smoothing = Number(input.value); output.textContent = smoothing; shown.forEach((one) => one.redraw()); });
  return [el("div", { class: "tools" }, el("label", {}, t("smoothing"), input, output)), el("div", { class: "charts" }, ...shown)];
}
