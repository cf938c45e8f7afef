"use strict";
/* What all pages share: their data, the language, elements, tables, sliders and charts. */
let DATA = JSON.parse(document.getElementById("data").textContent);

function remembered(key, value) {
  try {
    if (value !== undefined) sessionStorage.setItem(key, value);
    return sessionStorage.getItem(key);
  } catch (error) {
    return null; /* a browser that keeps nothing for files */
  }
}

let LANGUAGE = remembered("language") || DATA.language || ((navigator.language || "en").startsWith("zh") ? "zh" : "en");

function t(key) {
  const pair = WORDS[key];
  return pair ? pair[LANGUAGE === "zh" ? 1 : 0] : key;
}

/* A warning; in Chinese its usual meaning stands before the sentence of the log. */
function warning(text) {
  const known = Object.keys(WORDS).find((key) => key.startsWith("warning: ") && text.includes(WORDS[key][0]));
  return LANGUAGE === "zh" && known ? [t(known), el("br"), el("small", {}, text)] : [text];
}

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function section(key, ...children) {
  return el("section", { id: key }, el("h2", {}, t(key)), ...children);
}

function note(text) {
  return el("p", { class: "note" }, text);
}

/* Rows of cells; a row of one cell is a title. */
function table(head, rows, keyed) {
  const body = rows.map((row) => row.length === 1
    ? el("tr", { class: "title" }, el("td", { colspan: Math.max(1, head.length) }, t(row[0])))
    : el("tr", {}, ...row.map((cell, at) => el("td", keyed && at === 0 ? { class: "key" } : {},
      typeof cell === "string" || typeof cell === "number" ? t(String(cell)) : cell))));
  const heads = head.some((text) => text) ? [el("tr", {}, ...head.map((text) => el("th", {}, t(text))))] : [];
  return el("div", { class: "scroll" }, el("table", {}, ...heads, ...body));
}

function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds)), minutes = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
  if (hours) return `${hours} ${t("h")} ${minutes} ${t("min")}`;
  return minutes ? `${minutes} ${t("min")} ${whole % 60} ${t("s")}` : `${whole} ${t("s")}`;
}

function languageButton(redraw) {
  return el("button", { id: "language", onclick: () => {
    LANGUAGE = LANGUAGE === "zh" ? "en" : "zh";
    remembered("language", LANGUAGE);
    redraw();
  } }, LANGUAGE === "zh" ? "English" : "中文");
}

/* A slider over `labels`; `onchange(index)` is called for its first value too. */
function slider(id, labels, at, onchange) {
  const output = el("output", {}, labels[at]);
  const input = el("input", { type: "range", id, min: 0, max: labels.length - 1, step: 1, "aria-label": t("slider_step") });
  input.value = at;
  input.addEventListener("input", () => { output.textContent = labels[input.value]; onchange(Number(input.value)); });
  onchange(at);
  return el("div", { class: "slider" }, input, output);
}

const COLOURS = ["#1f6fb2", "#d4582a", "#2f8f4e", "#8a4fb0", "#b8860b", "#c23b6b", "#3a8f9c", "#666"];
const SVG = "http://www.w3.org/2000/svg";

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
  const raw = (high - low) / 3 || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(value);
  return found;
}

/* Curves over `steps`; `series` is name -> values, null where there is none. Logarithmic where they span two decades. */
function chart(title, steps, series) {
  const names = Object.keys(series).filter((name) => series[name].some((value) => value !== null));
  if (!names.length) return null;
  const width = 380, height = 190, left = 52, right = 10, top = 8, bottom = 22;
  const values = names.flatMap((name) => series[name]).filter((value) => value !== null);
  const positive = values.filter((value) => value > 0);
  const most = Math.max(...values), least = Math.min(...positive);
  const isLog = positive.length === values.length && most / least > 100;
  const scaled = (value) => isLog ? Math.log10(value) : value;
  let low = Math.min(...values.map(scaled)), high = Math.max(...values.map(scaled));
  if (high - low < 1e-9 * Math.max(1, Math.abs(high))) { low -= 0.5 * Math.max(1e-6, Math.abs(low)); high += 0.5 * Math.max(1e-6, Math.abs(high)); }
  const first = steps[0], last = steps[steps.length - 1];
  const x = (step) => left + (width - left - right) * (last > first ? (step - first) / (last - first) : 0.5);
  const y = (value) => top + (height - top - bottom) * (1 - (scaled(value) - low) / (high - low));
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const tick of ticksOf(low, high, isLog)) {
    const value = isLog ? 10 ** tick : tick, at = y(value);
    root.append(svg("line", { x1: left, x2: width - right, y1: at, y2: at, stroke: "#e4e9ef" }));
    root.append(svg("text", { x: left - 6, y: at + 4, "text-anchor": "end", "font-size": 11, fill: "#5b6b7c" }, short(value)));
  }
  for (const [step, anchor] of [[first, "start"], [last, "end"]])
    root.append(svg("text", { x: x(step), y: height - 6, "text-anchor": steps.length > 1 ? anchor : "middle", "font-size": 11, fill: "#5b6b7c" }, step));
  names.forEach((name, at) => {
    const points = steps.map((step, i) => series[name][i] === null ? null : `${x(step).toFixed(1)},${y(series[name][i]).toFixed(1)}`).filter(Boolean);
    const shape = points.length === 1 ? svg("circle", { cx: points[0].split(",")[0], cy: points[0].split(",")[1], r: 3, fill: COLOURS[at % COLOURS.length] })
      : svg("polyline", { points: points.join(" "), fill: "none", stroke: COLOURS[at % COLOURS.length], "stroke-width": 1.6 });
    root.append(shape);
  });
  const legend = el("div", { class: "legend" });
  const tell = (index) => {
    legend.replaceChildren(...names.map((name, at) => el("span", {}, el("span", { class: "swatch", style: `background:${COLOURS[at % COLOURS.length]}` }),
      `${names.length > 1 ? t(name.replace(/^\w+\//, "")) + " " : ""}${short(series[name][index])}`)), el("span", {}, `${t("step")} ${steps[index]}`));
  };
  const marker = svg("line", { y1: top, y2: height - bottom, x1: x(last), x2: x(last), stroke: "#8fa1b3", "stroke-dasharray": "3 3", visibility: "hidden" });
  root.append(marker);
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
  return el("div", { class: "chart" }, el("h3", {}, title), root, legend);
}
