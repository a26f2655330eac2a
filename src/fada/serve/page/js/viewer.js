// The page: its picture, the outlines of its lines, zoom and movement, drawing and moving of outlines.

import { button, h, s, speak } from "./dom.js";

const LARGEST = 8; // screen pixels for one of the picture
const FIRST_WIDTH = 1600; // pixels of the picture that is loaded first
const bounds = (outline) => {
  const xs = outline.map(([x]) => x), ys = outline.map(([, y]) => y);
  return { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
};
const path = (points) => points.map((point) => point.map((v) => Math.round(v * 10) / 10).join(",")).join(" ");

/** Where an upright cut through an outline enters and leaves it. */
function slice(outline, x) {
  const ys = [];
  outline.forEach(([x0, y0], at) => {
    const [x1, y1] = outline[(at + 1) % outline.length];
    if (x0 !== x1 && Math.min(x0, x1) <= x && x <= Math.max(x0, x1)) ys.push(y0 + ((y1 - y0) * (x - x0)) / (x1 - x0));
  });
  if (ys.length < 2) { const { top, bottom } = bounds(outline); return [top, bottom]; }
  return [Math.min(...ys), Math.max(...ys)];
}

/** The points of an outline that matter: none that is left out was farther than `off` from the line without it. */
export function simplified(points, off) {
  if (points.length < 3) return points;
  const [[x0, y0], [x1, y1]] = [points[0], points.at(-1)];
  const length = Math.hypot(x1 - x0, y1 - y0);
  const gap = ([x, y]) => (length ? Math.abs((x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0)) / length : Math.hypot(x - x0, y - y0));
  const gaps = points.map(gap);
  const at = gaps.indexOf(Math.max(...gaps));
  if (gaps[at] <= off) return [points[0], points.at(-1)];
  return [...simplified(points.slice(0, at + 1), off).slice(0, -1), ...simplified(points.slice(at), off)];
}

export class Viewer {
  /** on: `{choose(id), drawn(outline), shaped(id, outline, baseline), mode(name)}`. */
  constructor(on) {
    this.on = on;
    this.view = { x: 0, y: 0, scale: 1 };
    this.mode = "look";
    this.pointers = new Map();
    this.shapes = new Map();
    this.byHand = false;
    this.image = s("image", { preserveAspectRatio: "none" });
    this.outlines = s("g", { class: "outlines" });
    this.mark = s("polygon", { class: "seen" });
    this.handles = s("g", { class: "handles" });
    this.rubber = s("polygon", { class: "rubber" });
    this.moved = s("g", { class: "moved" }, this.image, this.outlines, this.mark, this.rubber, this.handles);
    this.svg = s("svg", { "aria-hidden": "true" }, this.moved);
    this.hint = h("p", { class: "hint", hidden: true });
    this.pane = h("div", {
      class: "canvas", tabindex: 0, role: "group",
      "aria-label": "Picture of the page. Plus and minus zoom, arrows move, 0 shows all.",
    }, this.svg);
    this.element = h("section", { class: "viewer", "aria-label": "Page" }, this.pane, this.hint,
      h("div", { class: "tools" },
        button("plus", "Zoom in", () => this.zoom(1.4), { key: "Alt +" }), button("minus", "Zoom out", () => this.zoom(1 / 1.4), { key: "Alt −" }),
        button("fit", "Show the whole page", () => this.fit(), { key: "Alt 0" }),
        h("span", { class: "rule" }),
        button("draw", "Draw a new line", () => this.setMode(this.mode === "draw" ? "look" : "draw"), { key: "Alt D" }),
        button("shape", "Move the outline of the line", () => this.setMode(this.mode === "shape" ? "look" : "shape"), { key: "Alt O" }),
        button("lines", "Picture with all lines, numbered", () => window.open(`/api/pages/${this.page.id}/drawing`, "_blank", "noopener"))));
    this.#listen();
    new ResizeObserver(() => this.page && (this.byHand ? this.#apply() : this.active ? this.follow(this.active, true) : this.fit())).observe(this.pane);
  }

  // --- what is shown ---

  show(page, rtl) {
    const other = this.page?.id !== page.id || this.page.image !== page.image; // turned upright, too
    this.page = page;
    this.rtl = rtl;
    if (other) {
      this.full = page.width <= FIRST_WIDTH;
      this.image.setAttribute("href", this.full ? page.image : `${page.image}&width=${FIRST_WIDTH}`);
      this.image.setAttribute("width", page.width);
      this.image.setAttribute("height", page.height);
      this.active = null;
      this.byHand = false;
    }
    this.lines(page.lines);
    if (other) this.fit();
  }

  lines(lines) {
    this.shapes = new Map(lines.map((line) => [line.id, line]));
    this.outlines.replaceChildren(...lines.map((line) => s("polygon", {
      points: path(line.outline), "data-line": line.id, "data-state": line.state, class: line.id === this.active ? "active" : "",
    })));
    if (this.active && !this.shapes.has(this.active)) this.active = null;
    if (this.edited && !this.shapes.has(this.edited.id)) this.setMode("look"); else if (this.edited) this.#redraw(); // a point that is held stays
  }

  update(line) {
    this.shapes.set(line.id, line);
    const shape = this.#shape(line.id);
    shape?.setAttribute("data-state", line.state);
    if (this.edited?.id !== line.id) shape?.setAttribute("points", path(line.outline));
  }

  #shape(id) { return this.outlines.querySelector(`[data-line="${id}"]`); }

  /** Make a line the one that is worked at; the page moves so that it is seen. */
  follow(id, still = false) {
    if (this.active !== id && this.mode === "shape") this.setMode("look");
    this.#shape(this.active)?.classList.remove("active");
    this.active = id;
    const line = this.shapes.get(id);
    if (!line) return;
    this.#shape(id).classList.add("active");
    this.see(null);
    const { left, right, top, bottom } = bounds(line.outline);
    const { width, height } = this.#size();
    if (!width || !height) return;
    let { scale } = this.view;
    if (!this.byHand) scale = Math.min(Math.max((0.94 * width) / this.#usualWidth(), 0.97 * this.#whole()), (0.3 * height) / (bottom - top), LARGEST / 2);
    const wide = (right - left) * scale > width * 0.98;
    const x = wide ? (this.rtl ? width - 12 - right * scale : 12 - left * scale) : width / 2 - ((left + right) / 2) * scale;
    const seenX = left * scale + this.view.x > 4 && right * scale + this.view.x < width - 4;
    const y = this.#inside(height * 0.45 - ((top + bottom) / 2) * scale, this.page.height * scale, height);
    const now = ((top + bottom) / 2) * this.view.scale + this.view.y;
    const calm = scale === this.view.scale && now > height * 0.25 && now < height * 0.65;
    this.#move({ scale, x: seenX && scale === this.view.scale ? this.view.x : x, y: calm ? this.view.y : y }, !still);
  }

  /** Show where a character stands: fractions of the width of the active line; null for none. */
  see(character) {
    const line = this.shapes.get(this.active);
    if (!character || !line) { this.mark.setAttribute("points", ""); return; }
    const { left, right } = bounds(line.outline);
    const from = left + character.start * (right - left), to = left + character.end * (right - left);
    const [a, b] = slice(line.outline, from), [c, d] = slice(line.outline, to);
    this.mark.setAttribute("points", path([[from, a], [to, c], [to, d], [from, b]]));
    if (to * this.view.scale + this.view.x > this.#size().width - 8 || from * this.view.scale + this.view.x < 8) {
      this.#move({ ...this.view, x: this.#size().width / 2 - from * this.view.scale }, true);
    }
  }

  /** The width of a long line of this page: what decides how far the page is zoomed in. */
  #usualWidth() {
    const widths = [...this.shapes.values()].map(({ outline }) => { const { left, right } = bounds(outline); return right - left; }).sort((a, b) => a - b);
    return widths[Math.floor(0.8 * (widths.length - 1))] || this.page.width;
  }

  /** A movement after which no more than a margin beside the page is seen. */
  #inside(to, length, room) {
    const margin = 24;
    return length + 2 * margin <= room ? (room - length) / 2 : Math.min(margin, Math.max(room - length - margin, to));
  }

  // --- zoom ---

  #size() { return { width: this.pane.clientWidth, height: this.pane.clientHeight }; }

  #whole() {
    const { width, height } = this.#size();
    return Math.min(width / this.page.width, height / this.page.height);
  }

  fit() {
    const { width, height } = this.#size();
    if (!this.page || !width) return;
    const scale = 0.97 * this.#whole();
    this.byHand = false;
    this.#move({ scale, x: (width - this.page.width * scale) / 2, y: (height - this.page.height * scale) / 2 });
  }

  zoom(factor, at) {
    if (!this.page) return;
    const { width, height } = this.#size();
    const [cx, cy] = at ?? [width / 2, height / 2];
    const scale = Math.min(Math.max(this.view.scale * factor, 0.5 * this.#whole()), LARGEST);
    const by = scale / this.view.scale;
    this.byHand = true;
    this.#move({ scale, x: cx - (cx - this.view.x) * by, y: cy - (cy - this.view.y) * by }, !at);
  }

  #move(view, smooth = false) {
    this.view = view;
    this.moved.classList.toggle("smooth", smooth);
    this.#apply();
  }

  #apply() {
    const { x, y, scale } = this.view;
    this.moved.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    for (const handle of this.handles.children) handle.style.transform = `translate(${handle.at[0]}px, ${handle.at[1]}px) scale(${1 / scale})`;
    if (!this.full && scale * this.page.width * (window.devicePixelRatio || 1) > 1.3 * FIRST_WIDTH) {
      this.full = true;
      const whole = new Image();
      const { image } = this.page;
      whole.onload = () => this.page.image === image && this.image.setAttribute("href", image);
      whole.src = image;
    }
  }

  /** The point of the page under a point of the screen. */
  #onPage(event) {
    const box = this.pane.getBoundingClientRect();
    const { x, y, scale } = this.view;
    return [
      Math.min(Math.max((event.clientX - box.left - x) / scale, 0), this.page.width),
      Math.min(Math.max((event.clientY - box.top - y) / scale, 0), this.page.height),
    ];
  }

  #onPane(event) {
    const box = this.pane.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  // --- hands ---

  #listen() {
    const { pane } = this;
    pane.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) this.#pan(-event.deltaY - event.deltaX, 0);
      else this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : event.deltaMode ? 0.05 : 0.0016)), this.#onPane(event));
    }, { passive: false });
    pane.addEventListener("pointerdown", (event) => this.#down(event));
    pane.addEventListener("pointermove", (event) => this.#drag(event));
    for (const end of ["pointerup", "pointercancel"]) pane.addEventListener(end, (event) => this.#up(event));
    pane.addEventListener("dblclick", (event) => {
      if (this.mode === "shape") this.#addPoint(event); else if (this.mode === "look") this.zoom(1.8, this.#onPane(event));
    });
    pane.addEventListener("keydown", (event) => this.#key(event));
  }

  #pan(dx, dy) {
    this.byHand = true;
    this.#move({ ...this.view, x: this.view.x + dx, y: this.view.y + dy });
  }

  #down(event) {
    if (!this.page || event.button > 0) return;
    this.pane.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.#onPane(event));
    this.travelled = 0;
    this.pressed = event.target;
    if (this.pointers.size > 1) { this.drawn = null; this.held = null; this.rubber.setAttribute("points", ""); return; }
    if (this.mode === "draw") this.drawn = this.#onPage(event);
    else if (this.mode === "shape" && event.target.at) { this.held = event.target; event.target.focus(); }
  }

  #drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = this.#onPane(event);
    const others = [...this.pointers.entries()].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    this.pointers.set(event.pointerId, now);
    const dx = now[0] - before[0], dy = now[1] - before[1];
    this.travelled += Math.hypot(dx, dy);
    if (others.length) {
      const [other] = others;
      const gap = (a) => Math.max(Math.hypot(a[0] - other[0], a[1] - other[1]), 1);
      this.#pan(dx / 2, dy / 2);
      this.zoom(gap(now) / gap(before), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
    } else if (this.drawn) this.rubber.setAttribute("points", path(this.#rectangle(this.drawn, this.#onPage(event))));
    else if (this.held) this.#place(this.held, this.#onPage(event));
    else if (this.travelled > 4) this.#pan(dx, dy);
  }

  #up(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    if (this.drawn) {
      const outline = this.#rectangle(this.drawn, this.#onPage(event));
      this.drawn = null;
      this.rubber.setAttribute("points", "");
      const { left, right, top, bottom } = bounds(outline);
      if ((right - left) * this.view.scale > 8 && (bottom - top) * this.view.scale > 6) { this.setMode("look"); this.on.drawn(outline); }
    } else if (this.held) this.held = null;
    else if (this.travelled < 6 && this.mode === "look" && this.pressed?.dataset?.line) this.on.choose(Number(this.pressed.dataset.line));
  }

  #rectangle([x0, y0], [x1, y1]) {
    const [l, r, t, b] = [Math.min(x0, x1), Math.max(x0, x1), Math.min(y0, y1), Math.max(y0, y1)];
    return [[l, t], [r, t], [r, b], [l, b]];
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const handle = event.target.at ? event.target : null;
    const step = event.shiftKey ? 10 : 1;
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (handle && arrow) this.#place(handle, [handle.at[0] + step * arrow[0], handle.at[1] + step * arrow[1]]);
    else if (handle && event.key === "Insert") this.#insertPoint(handle);
    else if (handle && (event.key === "Delete" || event.key === "Backspace")) this.#dropPoint(handle);
    else if (this.mode === "shape" && event.key === "Enter") this.#shaped();
    else if (this.mode !== "look" && event.key === "Escape") this.setMode("look");
    else if (this.mode === "draw" && event.key === "Enter") this.#drawBelow();
    else if (arrow) this.#pan(-60 * arrow[0], -60 * arrow[1]);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // --- outlines ---

  /** "look", "draw" or "shape". */
  setMode(mode) {
    if (mode === this.mode || (mode === "shape" && !this.shapes.has(this.active))) return;
    this.mode = mode;
    this.element.dataset.mode = mode;
    this.handles.replaceChildren();
    this.edited = null;
    this.hint.hidden = mode === "look";
    const done = (text, run) => h("button", { type: "button", class: "button", onclick: run }, text);
    const off = done("Cancel", () => this.setMode("look"));
    if (mode === "draw") this.hint.replaceChildren("Drag a frame around a line; Enter puts one below the line you are at. ", done("Put it below", () => this.#drawBelow()), off);
    if (mode === "shape") {
      const line = this.shapes.get(this.active);
      const { top, bottom } = bounds(line.outline);
      const slack = 0.08 * (bottom - top); // outlines that were found have a point for every letter: too many for a hand
      const few = simplified([...line.outline, line.outline[0]], slack).slice(0, -1);
      const kept = (found, all, least) => (found.length < least ? all : found).map((p) => [...p]);
      this.edited = { id: line.id, changed: false, outline: kept(few, line.outline, 3), baseline: kept(simplified(line.baseline, slack / 2), line.baseline, 2) };
      this.hint.replaceChildren("Drag points, or Tab and arrows; a double click or Insert adds one, Delete takes one away. ", done("Done", () => this.#shaped()), off);
      this.#showHandles();
    } else this.#redraw();
    if (mode === "look") this.on.mode?.(); else { this.pane.focus({ preventScroll: true }); speak(this.hint.textContent); }
  }

  #showHandles() {
    const make = (kind, point, at) => {
      const handle = kind === "outline" ? s("circle", { r: 6, class: "handle" }) : s("rect", { x: -5, y: -5, width: 10, height: 10, class: "handle base" });
      handle.setAttribute("tabindex", 0);
      handle.setAttribute("role", "button");
      handle.setAttribute("aria-label", `${kind === "outline" ? "Outline" : "Baseline"}, point ${at + 1}`);
      Object.assign(handle, { kind, number: at, at: point });
      return handle;
    };
    const { outline, baseline } = this.edited;
    this.svg.removeAttribute("aria-hidden");
    this.handles.replaceChildren(...outline.map((p, i) => make("outline", p, i)), ...baseline.map((p, i) => make("baseline", p, i)));
    this.#redraw();
    this.#apply();
  }

  #redraw() {
    if (!this.edited) { this.svg.setAttribute("aria-hidden", "true"); const line = this.shapes.get(this.active); if (line) this.update(line); return; }
    this.#shape(this.edited.id)?.setAttribute("points", path(this.edited.outline));
  }

  #place(handle, [x, y]) {
    handle.at = [Math.min(Math.max(x, 0), this.page.width), Math.min(Math.max(y, 0), this.page.height)];
    this.edited[handle.kind][handle.number] = handle.at;
    this.edited.changed = true;
    this.#redraw();
    this.#apply();
  }

  #addPoint(event) {
    const point = this.#onPage(event);
    const { outline } = this.edited;
    const off = ([x0, y0], [x1, y1]) => {
      const length = (x1 - x0) ** 2 + (y1 - y0) ** 2 || 1;
      const t = Math.min(Math.max(((point[0] - x0) * (x1 - x0) + (point[1] - y0) * (y1 - y0)) / length, 0), 1);
      return Math.hypot(point[0] - x0 - t * (x1 - x0), point[1] - y0 - t * (y1 - y0));
    };
    const gaps = outline.map((p, i) => off(p, outline[(i + 1) % outline.length]));
    outline.splice(gaps.indexOf(Math.min(...gaps)) + 1, 0, point);
    this.edited.changed = true;
    this.#showHandles();
  }

  /** A point half way to the next one. */
  #insertPoint({ kind, number, at: [x, y] }) {
    const points = this.edited[kind];
    const next = points[number + 1] ?? (kind === "outline" ? points[0] : null);
    if (!next) return;
    points.splice(number + 1, 0, [(x + next[0]) / 2, (y + next[1]) / 2]);
    this.edited.changed = true;
    this.#showHandles();
    [...this.handles.children].find((one) => one.kind === kind && one.number === number + 1)?.focus();
  }

  #dropPoint({ kind, number }) {
    if (kind === "outline" && this.edited.outline.length <= 3) return;
    this.edited[kind].splice(number, 1);
    this.edited.changed = true;
    this.#showHandles();
    (this.handles.children[number] ?? this.pane).focus();
  }

  #shaped() {
    const { id, outline, baseline, changed } = this.edited;
    this.setMode("look");
    if (changed) this.on.shaped(id, outline, baseline);
  }

  #drawBelow() {
    const line = this.shapes.get(this.active);
    const { width, height } = this.page;
    const { left, right, top, bottom } = line ? bounds(line.outline) : { left: width * 0.1, right: width * 0.9, top: 0, bottom: height * 0.05 };
    const tall = bottom - top;
    const from = Math.min(bottom, height - tall);
    this.setMode("look");
    this.on.drawn([[left, from], [right, from], [right, from + tall], [left, from + tall]]);
  }
}
