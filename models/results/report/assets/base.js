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

/* Light or dark: what the reader chose, else what the system prefers. */
const PREFERS_DARK = window.matchMedia("(prefers-color-scheme: dark)");
const themeListeners = new Set();

function isDark() {
  const chosen = remembered("theme");
  return chosen ? chosen === "dark" : PREFERS_DARK.matches;
}

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  themeListeners.forEach((listener) => listener());
}

PREFERS_DARK.addEventListener("change", applyTheme);
applyTheme();

function themeButton(redraw) {
  return el("button", { id: "theme", onclick: () => {
    remembered("theme", isDark() ? "light" : "dark");
    applyTheme();
    redraw();
  } }, t(isDark() ? "theme_light" : "theme_dark"));
}

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

/* Links to the sections that are on the page. */
function menu(sections, ...more) {
  return el("nav", { "aria-label": t("menu") }, ...sections.map((found) => el("a", { href: `#${found.id}` }, found.querySelector("h2").textContent)), ...more);
}

/* Why a run has no mesh: its page tells it, or follows from how it ended. */
function whyNoMesh(run) {
  if (run.mesh_words) return run.mesh_words;
  if (!run.status) return t("no_page_run");
  if (run.status.mesh !== "mesh_soon" || run.status.state === "training") return t(run.status.mesh);
  return t(run.status.state === "finished" ? "mesh_empty" : "mesh_stopped");
}

function whyNoPictures(run) {
  if (!run.status) return t("no_page_run");
  if (run.status.val_freq <= 0) return t("pictures_none");
  if (run.status.state !== "training") return t("pictures_stopped");
  return `${t("pictures_soon")} ${Math.min(run.status.val_freq, run.status.end)}`;
}

/* `PSNR 24.1 dB`; "" without a value. */
function measured(name, value, unit) {
  return value === null || value === undefined ? "" : `${name} ${short(value)}${unit ? ` ${unit}` : ""}`;
}

/* The group of a shown photograph, as a key of words; pages of earlier versions have training and held-out ones. */
function groupOf(shown) {
  return `group_${shown.group || (shown.held_out ? "held_out" : "training")}`;
}

function note(text) {
  return el("p", { class: "note" }, text);
}

/* A key of a conf, which may break after a dot or an underscore. */
function breakable(key) {
  return key.split(/(?<=[._])/).flatMap((part, at) => at ? [el("wbr"), part] : [part]);
}

/* Rows of cells; a row of one cell is a title. `best[row]`: the columns of a row that are marked. */
function table(head, rows, keyed, best) {
  const mark = (row, at) => keyed && at === 0 ? { class: "key" } : best && best[row].includes(at) ? { class: "best", title: t("best") } : {};
  const body = rows.map((row, index) => row.length === 1
    ? el("tr", { class: "title" }, el("td", { colspan: Math.max(1, head.length) }, t(row[0])))
    : el("tr", {}, ...row.map((cell, at) => el("td", mark(index, at),
      ...(keyed && at === 0 ? breakable(t(String(cell))) : [typeof cell === "string" || typeof cell === "number" ? t(String(cell)) : cell])))));
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
