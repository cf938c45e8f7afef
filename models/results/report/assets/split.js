"use strict";
/* Two pictures of one view over each other: a divider between them, and zoom. */
const MOST_ZOOM = 16, ZOOM_STEP = 1.5;

class SplitView {
  constructor() {
    this.divider = 0.5; this.zoom = 1; this.x = 0; this.y = 0; /* x, y: the shift of the pictures, in widths and heights */
    this.images = [el("img", { draggable: "false" }), el("img", { draggable: "false" })];
    this.layers = this.images.map((image) => el("div", { class: "layer" }, image));
    this.tags = [el("span", { class: "tag left" }), el("span", { class: "tag right" })];
    this.bar = el("div", { class: "bar" });
    this.node = el("div", { class: "split" }, this.layers[1], this.layers[0], this.bar, ...this.tags);
    this.input = el("input", { type: "range", id: "divider", min: 0, max: 1, step: 0.005, "aria-label": t("divider") });
    this.input.addEventListener("input", () => { this.divider = Number(this.input.value); this.place(); });
    const button = (id, words, action) => el("button", { id, "aria-label": t(id), title: t(id), onclick: action }, words);
    this.tools = el("div", { class: "slider split_tools" }, this.input, button("zoom_out", "−", () => this.zoomBy(1 / ZOOM_STEP)),
      button("zoom_in", "+", () => this.zoomBy(ZOOM_STEP)), button("zoom_all", "1×", () => this.zoomBy(1 / this.zoom)));
    this.images[0].addEventListener("load", () => this.fit());
    this.pointers = new Map();
    this.listen();
  }

  /* Pairs of address and name: the left and the right picture. */
  show(...pairs) {
    pairs.forEach(([address, name], at) => {
      if (this.images[at].src !== address) this.images[at].src = address;
      this.images[at].alt = this.tags[at].textContent = name;
    });
    this.place();
  }

  /* As wide as the page, but no higher than the window and no larger than four times the picture. */
  fit() {
    const { naturalWidth: width, naturalHeight: height } = this.images[0];
    if (!width || !height) return;
    this.node.style.aspectRatio = `${width} / ${height}`;
    this.node.style.width = `min(100%, ${4 * width}px, calc(75vh * ${width / height}))`;
    this.tools.style.maxWidth = `max(280px, min(${4 * width}px, calc(75vh * ${width / height})))`;
  }

  place() {
    this.x = Math.min(0, Math.max(1 - this.zoom, this.x));
    this.y = Math.min(0, Math.max(1 - this.zoom, this.y));
    for (const image of this.images) image.style.transform = `translate(${100 * this.x}%, ${100 * this.y}%) scale(${this.zoom})`;
    this.layers[0].style.clipPath = `inset(0 ${100 * (1 - this.divider)}% 0 0)`;
    this.bar.style.left = `${100 * this.divider}%`;
    this.input.value = this.divider;
    this.node.classList.toggle("zoomed", this.zoom > 1);
    this.node.dataset.zoom = this.zoom.toFixed(3);
  }

  /* Zoom about a point of the view, in widths and heights; the middle by default. */
  zoomBy(factor, x = 0.5, y = 0.5) {
    const zoom = Math.min(MOST_ZOOM, Math.max(1, this.zoom * factor)), ratio = zoom / this.zoom;
    this.x = x - ratio * (x - this.x);
    this.y = y - ratio * (y - this.y);
    this.zoom = zoom;
    this.place();
  }

  listen() {
    const at = (event) => { const box = this.node.getBoundingClientRect(); return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]; };
    const spread = () => { const [a, b] = [...this.pointers.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
    this.node.addEventListener("pointerdown", (event) => {
      const point = at(event);
      this.node.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, point);
      this.movesBar = this.zoom === 1 || Math.abs(point[0] - this.divider) < 0.03;
      if (this.movesBar && this.pointers.size === 1) { this.divider = point[0]; this.place(); }
    });
    this.node.addEventListener("pointermove", (event) => {
      const before = this.pointers.get(event.pointerId), point = at(event);
      if (!before) return;
      const wide = this.pointers.size === 2 ? spread() : 0;
      this.pointers.set(event.pointerId, point);
      if (wide) { this.zoomBy(spread() / wide, ...point); return; }
      if (this.movesBar) this.divider = Math.min(1, Math.max(0, point[0]));
      else { this.x += point[0] - before[0]; this.y += point[1] - before[1]; }
      this.place();
    });
    for (const name of ["pointerup", "pointercancel"])
      this.node.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    this.node.addEventListener("dblclick", (event) => this.zoomBy(this.zoom > 1 ? 1 / this.zoom : 3, ...at(event)));
    this.node.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && this.zoom === 1) return; /* the page scrolls until the reader zooms */
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * 0.003), ...at(event));
    }, { passive: false });
  }
}
