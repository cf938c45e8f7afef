"use strict";
/* The page of a reconstruction: the text of result.md with its images, its commands to copy, and the mesh. */
const SHORT = 12; /* rows of a table that is shown at once */

/* A line of Markdown as nodes: spans of code and bold text; a backslash and the entities stand for plain characters. */
function inline(text) {
  const plain = (part) => part.replace(/\\([^a-zA-Z0-9\s])/g, "$1").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  return text.split(/((?<!\\)`[^`]+`|\*\*.+\*\*)/).map((part) =>
    part.startsWith("`") ? el("code", {}, part.slice(1, -1)) : part.startsWith("**") ? el("b", {}, plain(part.slice(2, -2))) : plain(part));
}

/* A command with a button that copies it; navigator.clipboard is missing in some browsers for files. */
function command(line) {
  const text = el("pre", {}, line), button = el("button", { onclick: () => {
    getSelection().selectAllChildren(text);
    if (document.execCommand("copy")) button.textContent = t("copied");
  } }, t("copy"));
  return el("div", { class: "command" }, text, button);
}

/* A fenced block; of commands, each with its comment before it. */
function fence(kind, lines) {
  if (kind !== "bash") return [el("pre", {}, lines.join("\n"))];
  return lines.map((line) => line.startsWith("# ") ? el("div", {}, line.slice(2)) : command(line));
}

function cellsOf(line) {
  return line.slice(1, -1).split(/(?<!\\)\|/).map((cell) => cell.trim());
}

/* What the lines of a paragraph are, which no empty line divides. */
function block(lines) {
  const images = lines.map((line) => line.match(/^!\[(.*)\]\((.*)\)$/)), [image] = images;
  if (images.length === 2 && images.every((one) => one && one[2] in DATA.images)) {
    const both = new SplitView();
    both.show(...images.map(([, name, file]) => [DATA.images[file], name]));
    return [both.node, both.tools];
  }
  if (image) return [image[2] in DATA.images ? el("img", { class: "wide", src: DATA.images[image[2]], alt: image[1] }) : note(image[1])];
  if (lines[0].startsWith("- ")) return [el("ul", { class: "warnings" }, ...lines.map((line) => el("li", {}, ...inline(line.slice(2)))))];
  if (!lines[0].startsWith("|")) return [el("p", {}, ...inline(lines.join(" ")))];
  const [head, , ...rows] = lines.map((line) => cellsOf(line).map((cell) => el("span", {}, ...inline(cell))));
  const shown = table(head.map((cell) => cell.textContent), rows);
  return [rows.length <= SHORT ? shown : el("details", {}, el("summary", {}, head.map((cell) => cell.textContent).join(" · ")), shown)];
}

/* The title of a page and its sections, [title, nodes] each; what stands before the first one has the title "". */
function parsed(text) {
  const lines = text.split("\n"), parts = [["", []]];
  let title = "";
  while (lines.length) {
    const line = lines.shift();
    if (line.startsWith("# ")) title = inline(line.slice(2)).join("");
    else if (line.startsWith("## ")) parts.push([line.slice(3), []]);
    else if (line.startsWith("```")) parts.at(-1)[1].push(...fence(line.slice(3), lines.splice(0, lines.indexOf("```")))), lines.shift();
    else if (line) {
      const end = lines.indexOf("");
      parts.at(-1)[1].push(...block([line, ...lines.splice(0, end < 0 ? lines.length : end)]));
    }
  }
  return { title, parts };
}

let shown = null;

function draw() {
  const { title, parts } = parsed(DATA.text), [[, first], ...others] = parts;
  document.documentElement.lang = LANGUAGE;
  if (DATA.mesh && !shown) shown = meshView(DATA.mesh, DATA.up, DATA.front, null, DATA.ruler);
  if (shown && shown.redraw) shown.redraw();
  const mesh = shown ? [section("mesh", shown.node, note(`${DATA.mesh.triangles} ${t("triangles")}${DATA.mesh.whole > DATA.mesh.triangles ? `, ${t("thinned")} ${DATA.mesh.whole}` : ""} · ${t("drag")}`))] : [];
  const sections = [...mesh, ...others.map(([name, nodes]) => el("section", { id: name.toLowerCase().replace(/\W+/g, "-") }, el("h2", {}, name), ...nodes))];
  document.getElementById("page").replaceChildren(
    el("header", {}, el("h1", {}, title), themeButton(draw), languageButton(draw)), menu(sections), ...mesh, el("section", {}, ...first), ...sections.slice(mesh.length));
}

draw();
