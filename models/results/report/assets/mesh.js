"use strict";
/* A turning mesh: drag to turn it, wheel or two fingers to come nearer, two clicks to measure. Needs three.js. */
const CLICK = 4, MARK = 0.015; /* pixels that a click may move; radius of a measured point, of the mesh's */

function decoded(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}

class MeshView {
  constructor(up, front) {
    this.canvas = el("canvas", { class: "mesh", "aria-label": t("mesh") });
    this.renderer = new THREE.WebGLRenderer({ canvas: this.canvas, antialias: true, preserveDrawingBuffer: true });
    this.scene = new THREE.Scene();
    themeListeners.add(() => this.onTheme());
    this.onTheme();
    this.camera = new THREE.PerspectiveCamera(40, 1, 0.01, 1000);
    this.lamp = new THREE.DirectionalLight(0xffffff, 0.85);
    this.scene.add(this.lamp, new THREE.AmbientLight(0xffffff, 0.25));
    this.up = new THREE.Vector3(...up).normalize();
    const away = new THREE.Vector3(...front);
    away.addScaledVector(this.up, -away.dot(this.up));
    if (away.length() < 1e-3) away.set(this.up.y, this.up.z, this.up.x).cross(this.up);
    this.away = away.normalize();
    this.side = new THREE.Vector3().crossVectors(this.up, this.away);
    this.turn = 0; this.tilt = 0.3; this.distance = 3.2; this.isTurning = true; this.shape = false; this.wires = false; this.showsCameras = false;
    this.lit = false; this.light = -0.6; this.measures = false; this.ends = [];
    this.middle = new THREE.Vector3();
    this.pointers = new Map();
    this.listen();
    const frame = (time) => { this.frame(time); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
  }

  show(part) {
    if (this.mesh) { this.scene.remove(this.mesh); this.mesh.geometry.dispose(); }
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(decoded(part.positions, Float32Array), 3));
    geometry.setIndex(new THREE.BufferAttribute(decoded(part.indices, Uint32Array), 1));
    if (part.colors) geometry.setAttribute("color", new THREE.BufferAttribute(decoded(part.colors, Uint8Array), 3, true));
    if (part.normals) geometry.setAttribute("normal", new THREE.BufferAttribute(decoded(part.normals, Int8Array), 3, true));
    else geometry.computeVertexNormals();
    geometry.computeBoundingSphere();
    const clay = new THREE.MeshLambertMaterial({ color: 0xccd4e0, side: THREE.DoubleSide });
    const colours = part.picture ? { map: this.texture(part, geometry) } : part.colors ? { vertexColors: true } : null;
    const [plain, lit] = colours ? [THREE.MeshBasicMaterial, THREE.MeshLambertMaterial].map((Kind) => new Kind({ ...colours, side: THREE.DoubleSide })) : [clay, clay];
    this.mesh = new THREE.Mesh(geometry, plain);
    this.materials = { plain, lit, clay };
    this.hasColours = Boolean(colours);
    this.middle.copy(geometry.boundingSphere.center);
    this.radius = geometry.boundingSphere.radius;
    if (!this.placed) { this.distance = 2.9 * this.radius; this.placed = true; }
    this.scene.add(this.mesh);
    this.dirty = true;
  }

  /* Shown as soon as the browser has decoded the image. */
  texture(part, geometry) {
    geometry.setAttribute("uv", new THREE.BufferAttribute(decoded(part.uv, Float32Array), 2));
    return new THREE.TextureLoader().load(part.picture, () => this.set("dirty", true));
  }

  /* Takes where a click meets the mesh as the next of two points; beside the mesh, nothing. */
  pick(event) {
    const box = this.canvas.getBoundingClientRect(), caster = new THREE.Raycaster();
    const place = new THREE.Vector2(2 * (event.clientX - box.left) / box.width - 1, 1 - 2 * (event.clientY - box.top) / box.height);
    caster.setFromCamera(place, this.camera);
    const [found] = caster.intersectObject(this.mesh);
    if (found) this.mark([...(this.ends.length < 2 ? this.ends : []), found.point]);
  }

  mark(ends) {
    this.ends = ends;
    this.scene.remove(this.marks);
    this.marks = new THREE.Group();
    const paint = { color: 0xd4582a, depthTest: false };
    for (const end of ends) {
      const ball = new THREE.Mesh(new THREE.SphereGeometry(MARK * this.radius), new THREE.MeshBasicMaterial(paint));
      ball.position.copy(end);
      this.marks.add(ball);
    }
    this.marks.add(new THREE.Line(new THREE.BufferGeometry().setFromPoints(ends), new THREE.LineBasicMaterial(paint)));
    this.scene.add(this.marks);
    this.dirty = true;
    if (this.onmeasure) this.onmeasure();
  }

  cameras(text) {
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(decoded(text, Float32Array), 3));
    this.lines = new THREE.LineSegments(geometry, new THREE.LineBasicMaterial({ color: 0x1f6fb2 }));
    this.lines.visible = false;
    this.scene.add(this.lines);
    geometry.computeBoundingSphere();
    this.reach = geometry.boundingSphere.center.length() + geometry.boundingSphere.radius;
  }

  onTheme() {
    this.scene.background = new THREE.Color(isDark() ? 0x1a222c : 0xffffff);
    this.dirty = true;
  }

  set(name, value) { this[name] = value; this.dirty = true; }

  showCameras(is_shown) {
    this.showsCameras = is_shown;
    if (this.lines) this.lines.visible = is_shown;
    this.distance = is_shown ? 2.6 * this.reach : 2.9 * this.radius;
    this.dirty = true;
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.pressed = [event.clientX, event.clientY]);
      this.isTurning = false;
      if (this.onstop) this.onstop();
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = this.pointers.get(event.pointerId);
      if (!before) return;
      const spread = () => { const [a, b] = [...this.pointers.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
      const wide = this.pointers.size === 2 ? spread() : 0;
      this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
      if (this.pointers.size === 2) this.zoom(wide / Math.max(1, spread()));
      else {
        this.turn -= (event.clientX - before[0]) * 0.01;
        this.tilt = Math.max(-1.5, Math.min(1.5, this.tilt + (event.clientY - before[1]) * 0.01));
      }
      this.dirty = true;
    });
    canvas.addEventListener("pointerup", (event) => {
      const [x, y] = this.pressed || [NaN, NaN];
      if (this.measures && Math.hypot(event.clientX - x, event.clientY - y) <= CLICK) this.pick(event);
    });
    for (const name of ["pointerup", "pointercancel"])
      canvas.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(Math.exp(event.deltaY * 0.001)); }, { passive: false });
  }

  zoom(factor) {
    this.distance = Math.max(0.2, Math.min(200, this.distance * factor));
    this.dirty = true;
  }

  frame(time) {
    const box = this.canvas.getBoundingClientRect();
    const isSeen = this.canvas.isConnected && box.width > 0 && box.bottom > 0 && box.top < window.innerHeight && !document.hidden;
    if (!isSeen || !this.mesh) { this.last = time; return; }
    if (this.isTurning) { this.turn += Math.min(100, time - (this.last || time)) * 0.0005; this.dirty = true; }
    this.last = time;
    const ratio = Math.min(2, window.devicePixelRatio || 1), width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.renderer.setSize(width, height, false);
      this.camera.aspect = width / height;
      this.camera.updateProjectionMatrix();
      this.dirty = true;
    }
    if (!this.dirty) return;
    this.dirty = false;
    const flat = Math.cos(this.tilt);
    const eye = new THREE.Vector3().addScaledVector(this.away, flat * Math.cos(this.turn)).addScaledVector(this.side, flat * Math.sin(this.turn)).addScaledVector(this.up, Math.sin(this.tilt));
    const wide = Math.max(1, 1 / this.camera.aspect);
    this.camera.up.copy(this.up);
    this.camera.position.copy(this.middle).addScaledVector(eye, this.distance * wide);
    this.camera.lookAt(this.middle);
    const right = new THREE.Vector3().crossVectors(this.up, eye).normalize();
    this.lamp.position.copy(eye).multiplyScalar(Math.cos(this.light)).addScaledVector(right, Math.sin(this.light)).addScaledVector(this.up, 0.5);
    this.mesh.material = this.materials[this.shape ? "clay" : this.lit ? "lit" : "plain"];
    this.mesh.material.wireframe = this.wires;
    this.renderer.render(this.scene, this.camera);
    this.canvas.dataset.turn = this.turn.toFixed(4);
  }
}

/* The mesh with its buttons; a sentence where the browser or the page cannot show it. `ruler`: the length of a unit of
   the mesh and its name; without it nothing is measured. */
function meshView(part, up, front, cameras, ruler) {
  if (typeof THREE === "undefined") return { node: note(t("no_viewer")) };
  let view;
  try {
    view = new MeshView(up, front);
    if (cameras) view.cameras(cameras);
    view.show(part);
  } catch (error) {
    return { node: note(t("no_webgl")) };
  }
  const buttons = el("div", { class: "buttons" }), told = el("p", { class: "note", id: "measured", "aria-live": "polite" });
  const lamp = el("input", { type: "range", id: "light", min: -3.1, max: 3.1, step: 0.1, value: view.light, "aria-label": t("light_from") });
  lamp.addEventListener("input", () => { view.set("light", Number(lamp.value)); if (!view.lit) { view.set("lit", true); redraw(); } });
  view.onmeasure = () => {
    const [from, to] = view.ends, length = to ? ruler.scale * from.distanceTo(to) : 0;
    const error = ruler.error ? ` ± ${short(ruler.error * length)}` : "";
    told.textContent = !view.measures ? "" : to ? `${t("distance_of")} ${short(length)}${error} ${t(ruler.unit)}` : t(from ? "pick_second" : "pick_first");
  };
  const redraw = () => {
    const button = (id, words, pressed, action) => el("button", { id, "aria-pressed": pressed, onclick: () => { action(); redraw(); } }, t(words));
    buttons.replaceChildren(...[
      button("turning", "turning", view.isTurning, () => view.set("isTurning", !view.isTurning)),
      view.hasColours ? button("shape", "shape", view.shape, () => view.set("shape", !view.shape)) : null,
      button("lit", "light", view.lit || view.shape, () => view.set("lit", !view.lit)),
      button("wires", "wires", view.wires, () => view.set("wires", !view.wires)),
      cameras ? button("cameras", "cameras", view.showsCameras, () => view.showCameras(!view.showsCameras)) : null,
      ruler ? button("measures", "measure", view.measures, () => { view.measures = !view.measures; view.mark([]); }) : null,
    ].filter(Boolean));
  };
  view.onstop = redraw;
  redraw();
  const light = el("label", { class: "slider" }, t("light_from"), lamp);
  return { node: el("div", {}, view.canvas, told, buttons, light), view, redraw };
}
