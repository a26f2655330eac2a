// What is known of the text: its domain, texts of its time, how often each character is written, how much it all counts.

import { get, post, put, remove, upload } from "./api.js";
import { accepts, button, calmed, complain, count, h, number, percent, s, speak, toast } from "./dom.js";
import { visible } from "./text.js";

const USUAL = 30; // characters that are shown before one asks for all
const WEIGHTS = [
  ["lam", "The picture against the frequencies", "λ: at 1 the frequencies are not used", 0, 1, 0.05],
  ["prior", "Prior", "how far the frequencies of the training text are exchanged for those of the domain", 0, 1.5, 0.05],
  ["lm", "Language model", "how much the texts count", 0, 2, 0.05],
  ["length", "Length", "what every character gains", -1, 3, 0.1],
];

const LANGUAGES = new Intl.DisplayNames(["en"], { type: "language", fallback: "none" });

/** A domain with the language and century that its name may tell: "la-13 (Latin, century 13)". */
function told(name) {
  const [, code, century] = /^([a-z]{2,3})(?:-(\d{1,2}))?$/.exec(name) ?? [];
  const language = code && LANGUAGES.of(code);
  return language ? `${name} (${language}${century ? `, century ${century}` : ""})` : name;
}

export class Knowledge {
  /** on: `{page(), close()}`. */
  constructor(on) {
    this.on = on;
    this.body = h("div", { class: "sections" });
    this.status = h("span", { class: "note", role: "status" });
    this.element = h("aside", { class: "drawer", "aria-label": "What is known of the text", hidden: true },
      h("header", {}, h("h2", {}, "Knowledge"), this.status, button("close", "Close", () => on.close(), { key: "Esc" })), this.body);
    accepts(this.element, (files) => this.#files(files));
    this.element.addEventListener("focusout", () => setTimeout(() => this.stale && this.elsewhere()));
    this.sendTargets = calmed(300, () => this.#put({ targets: Object.fromEntries(this.edits) }));
    this.sendWeights = calmed(250, (weights) => this.#put({ weights }));
  }

  focus() { this.element.querySelector("select")?.focus(); }

  /** What was moved last goes out before all is left. */
  leave() { this.sendTargets.now(); this.sendWeights.now(); this.sendMix?.now(); }

  async show(document_) {
    const other = this.document !== document_;
    if (other) this.pasted = null;
    this.document = document_;
    if (this.element.hidden || (!other && this.known)) return;
    try { this.#take(await get(`/documents/${document_}/knowledge`)); } catch (error) { complain(error); }
  }

  /** How far reading again is. */
  heard(job) {
    if (job.kind !== "again") { if (job.kind === "adapt" && job.state === "done") this.known = null; return; }
    const ended = ["done", "failed", "cancelled"].includes(job.state);
    this.status.textContent = ended ? (job.state === "done" ? "read again" : job.state === "failed" ? job.message : "") : `reading again… ${job.total ? percent(job.done / job.total) : ""}`;
    if (ended && job.state === "done" && this.known?.domain === "unknown" && !this.element.hidden) {
      get(`/documents/${this.document}/knowledge`).then((known) => {
        if (known.version !== this.version) { this.elsewhere(); return; } // chosen by somebody else: shown as a whole, or not at all
        this.known = known;
        this.#drawDomain();
      }).catch(() => {});
    }
  }

  /** One change after the other: each begins with what the one before has left. */
  #change(run) {
    this.last = (this.last ?? Promise.resolve()).then(() => this.#changed(run));
    return this.last;
  }

  async #changed(run) {
    this.status.textContent = "reading again…";
    this.changing = true;
    try {
      const page = this.on.page();
      const { knowledge } = await run(page ? `page=${page}` : "");
      this.version = knowledge.version;
      this.stale = false;
      return knowledge;
    } catch (error) {
      this.status.textContent = "";
      if (error.status === 409) { toast("What is known was changed elsewhere meanwhile; here it is as it is now."); this.#take(error.body.knowledge); } else complain(error);
      return null;
    } finally { this.changing = false; }
  }

  /** Whether somebody is at it: then nothing changes under their hands, and if it matters, their change is refused. */
  get #inHand() {
    return this.changing || this.dragging || this.sendTargets.waiting() || this.sendWeights.waiting() || this.element.contains(document.activeElement);
  }

  /** Something was changed, by somebody else or by us: then it is the version that we have. */
  async elsewhere(version) {
    if (this.element.hidden) { this.known = null; return; }
    if (version !== undefined && version === this.version) return;
    this.stale = this.#inHand;
    if (this.stale) return;
    try {
      const known = await get(`/documents/${this.document}/knowledge`);
      this.stale = this.#inHand && known.version !== this.version;
      if (!this.#inHand) this.#take(known);
    } catch { /* the next time */ }
  }

  async #put(change) {
    const known = await this.#change((query) => put(`/documents/${this.document}/knowledge?${query}`, { version: this.version, ...change }));
    if (!known) { if (this.known) this.#take(this.known); return; }
    if (change.domain !== undefined) this.#take(known);
    else { this.known = known; if (change.mix) this.#drawTargets(); else this.#refresh(); }
  }

  // --- what is shown ---

  #take(known) {
    const at = this.element.contains(document.activeElement) ? document.activeElement : null;
    this.known = known;
    this.version = known.version;
    this.stale = false;
    this.edits = this.#edited(known.targets);
    this.domainBox = h("section", {});
    this.textBox = h("section", {});
    this.targetBox = h("section", {});
    this.weightBox = h("section", {});
    this.worthBox = h("section", { class: "worth" });
    this.body.replaceChildren(this.domainBox, this.textBox, this.targetBox, this.weightBox, this.worthBox);
    this.#drawDomain();
    this.#drawTexts();
    this.#drawTargets();
    this.#drawWeights();
    this.#drawWorth();
    if (at && !at.isConnected) this.#again(at)?.focus({ preventScroll: true });
  }

  /** What stands now where an element stood. */
  #again(old) {
    const called = (one) => one.id || one.getAttribute("aria-label") || one.textContent;
    return [...this.body.querySelectorAll(old.tagName)].find((one) => called(one) === called(old));
  }

  /** The frequencies that were set by hand. */
  #edited(targets) {
    return new Map(targets.filter((one) => one.edited).map((one) => [one.character, one.frequency]));
  }

  #drawDomain() {
    const { domain, inferred, domains, mix } = this.known;
    const mixed = Object.keys(mix ?? {}).length > 0;
    const choice = h("select", { id: "domain", onchange: () => (choice.value === "mixed" ? this.#drawMix({}) : this.#put({ domain: choice.value === "none" ? null : choice.value })) },
      h("option", { value: "unknown", selected: domain === "unknown" && !mixed }, "unknown: let the lines tell"),
      h("option", { value: "none", selected: domain === null && !mixed }, "use no knowledge"),
      domains.map((name) => h("option", { value: name, selected: name === domain && !mixed }, told(name))),
      domains.length > 1 && h("option", { value: "mixed", selected: mixed }, "a mixture of several"));
    this.domainBox.replaceChildren(h("h3", {}, h("label", { for: "domain" }, "Domain")), choice);
    if (mixed) this.#drawMix(mix);
    else if (domain === "unknown" && inferred) {
      this.domainBox.append(h("p", { class: "inferred" }, "It seems to be ", h("b", {}, told(inferred.name)), `, ${inferred.certainty > 0.99 ? "more than 99 %" : percent(inferred.certainty)} certain.`),
        h("progress", { max: 1, value: inferred.certainty, "aria-label": "Certainty" }));
    } else if (domain === "unknown" && domains.length) this.domainBox.append(h("p", { class: "note" }, "All of them together guide the reading."));
    else if (!domains.length) this.domainBox.append(h("p", { class: "note" }, "The model brings no domains. A text of the period makes one."));
  }

  /** Shares of several domains. */
  #drawMix(mix) {
    this.domainBox.querySelectorAll("p, progress, .mix").forEach((one) => one.remove());
    const inputs = new Map();
    this.sendMix?.now();
    const send = this.sendMix = calmed(300, () => {
      const shares = Object.fromEntries([...inputs].map(([name, input]) => [name, Number(input.value)]).filter(([, share]) => share > 0));
      if (Object.keys(shares).length) this.#put({ mix: shares });
    });
    this.domainBox.append(h("div", { class: "mix" }, this.known.domains.map((name, at) => {
      const output = h("output", { for: `mix-${at}` }, percent(mix[name] ?? 0));
      const input = h("input", { id: `mix-${at}`, type: "range", min: 0, max: 1, step: 0.05, oninput: () => { output.textContent = percent(Number(input.value)); send(); } });
      input.value = mix[name] ?? 0;
      inputs.set(name, input);
      return h("div", { class: "weight" }, h("label", { for: `mix-${at}` }, told(name)), output, input);
    })));
  }

  #drawTexts() {
    const { texts } = this.known;
    const pasted = h("textarea", { id: "pasted", rows: 3, placeholder: "Paste a text of the period, or drop files here", spellcheck: "false", value: this.pasted?.value ?? "" });
    this.pasted = pasted; // what is in it stays when all is drawn anew
    const file = h("input", { type: "file", multiple: true, accept: ".txt,text/plain", class: "unseen", tabindex: -1, "aria-hidden": "true", onchange: () => this.#files([...file.files].map((one) => ({ file: one }))) });
    const add = async () => {
      const text = pasted.value;
      if (!text.trim()) { pasted.focus(); return; }
      const name = `pasted: ${text.trim().slice(0, 30).replace(/\s+/gu, " ")}…`;
      const known = await this.#change((query) => post(`/documents/${this.document}/texts?${query}`, { name, text }));
      if (known) { pasted.value = ""; this.#take(known); speak("The text is known now"); }
    };
    this.textBox.replaceChildren(
      h("h3", {}, "Texts of the period"),
      h("ul", { class: "texts" }, texts.map((text) => h("li", {}, h("span", { class: "grow", title: text.name }, text.name), h("span", { class: "note" }, count(text.characters, "character")),
        button("trash", `Forget the text ${text.name}`, async () => {
          const known = await this.#change((query) => this.#forget(text.id, query));
          if (known) this.#take(known);
        })))),
      ...(texts.length ? [h("p", { class: "note" }, `${texts.length === 1 ? "It guides" : "They guide"} the reading: by a language model, with the weight ${number(this.known.weights.lm)}, and in the frequencies below.`)] : []),
      h("label", { for: "pasted", class: "unseen" }, "A text of the period"), pasted,
      h("div", { class: "buttons" }, h("button", { type: "button", class: "button", onclick: add }, "Add the text"),
        h("button", { type: "button", class: "button", onclick: () => file.click() }, "From files…"), file));
  }

  #forget(id, query) { return remove(`/documents/${this.document}/texts/${id}?${query}`); }

  async #files(files) {
    const form = new FormData();
    for (const { file } of files) form.append("files", file, file.name);
    const known = await this.#change((query) => upload(`/documents/${this.document}/texts/files?${query}`, form));
    if (known) { this.#take(known); speak(`${count(files.length, "text")} added`); }
  }

  // --- frequencies ---

  #scale() { return Math.sqrt(1.3 * Math.max(0.02, ...this.edits.values(), ...this.known.targets.map((one) => Math.max(one.frequency, one.counted)))); }

  #drawTargets() {
    const { targets } = this.known;
    const box = this.targetBox;
    if (!targets.length) {
      box.replaceChildren(h("h3", {}, "Frequencies"), h("p", { class: "note" }, "None are known yet. Choose a domain, or give a text."));
      return;
    }
    const filter = h("input", { type: "search", placeholder: "character or name", "aria-label": "Find a character", oninput: () => draw() });
    const list = h("ul", { class: "bars" });
    const reset = h("button", { type: "button", class: "button", onclick: () => { this.edits.clear(); this.sendTargets(); } }, "As counted");
    const all = h("button", { type: "button", class: "button", onclick: () => { this.all = true; draw(); } });
    const draw = () => {
      const asked = filter.value.trim().toLowerCase();
      const found = targets.filter((one) => !asked || one.character === filter.value.trim() || one.name.toLowerCase().includes(asked));
      const shown = this.all || asked ? found : found.filter((one, at) => at < USUAL || this.edits.has(one.character));
      this.bars = new Map(shown.map((one) => [one.character, this.#bar(one.character)]));
      list.replaceChildren(...[...this.bars.values()].map((bar) => bar.element));
      all.hidden = shown.length === found.length;
      all.textContent = `All ${found.length}`;
      this.#refresh();
    };
    this.reset = reset;
    box.replaceChildren(h("h3", {}, "Frequencies"),
      h("p", { class: "note" }, "Drag a bar, or type per mille; 0 forbids a character. ", h("span", { class: "key counted" }, "as counted"), " ", targets.some((one) => one.training !== null) && h("span", { class: "key training" }, "in the training of the model"), " — the bars grow with the square root."),
      h("div", { class: "buttons" }, filter, reset), list, all);
    draw();
  }

  /** A character as the server has it, with the frequency that was set here since. */
  #target(character) {
    const found = this.known.targets.find((one) => one.character === character);
    return found && { ...found, frequency: this.edits.get(character) ?? (found.edited ? found.counted : found.frequency) };
  }

  /** A bar that is dragged, moved by arrows, or given a number. */
  #bar(character) {
    const { name } = this.#target(character);
    const W = 200, H = 20;
    const fill = s("rect", { class: "fill", x: 0, y: 3, height: H - 6, rx: 2 });
    const counted = s("line", { class: "counted", y1: 0, y2: H }), training = s("line", { class: "training", y1: 0, y2: H });
    const grip = s("line", { class: "grip", y1: 2, y2: H - 2 });
    const slider = h("div", {
      class: "slider", role: "slider", tabindex: 0, "aria-label": `Frequency of ${name.toLowerCase()}`, "aria-valuemin": 0, "aria-valuemax": 1000,
    }, s("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", "aria-hidden": "true" }, fill, counted, training, grip));
    const input = h("input", {
      type: "number", min: 0, max: 1000, step: "any", "aria-label": `Per mille of ${name.toLowerCase()}`,
      onchange: () => { const value = Number(input.value) / 1000; if (input.value !== "" && value >= 0 && value <= 1) set(value); else this.#refresh(); },
    });
    const forbid = button("none", `Forbid ${name.toLowerCase()}`, () => set(this.edits.get(character) === 0 ? this.#target(character).counted : 0));
    const set = (value) => {
      const target = this.#target(character);
      if (Math.abs(value - target.counted) < 1e-9) this.edits.delete(character); else this.edits.set(character, Math.min(Math.max(value, 0), 0.95));
      this.#refresh();
      this.sendTargets();
    };
    const at = (event) => { const box = slider.getBoundingClientRect(); return (Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * this.scale) ** 2; };
    slider.addEventListener("pointerdown", (event) => { slider.setPointerCapture(event.pointerId); this.dragging = true; this.scale = this.#scale(); set(at(event)); });
    slider.addEventListener("pointermove", (event) => { if (slider.hasPointerCapture(event.pointerId)) set(at(event)); });
    slider.addEventListener("lostpointercapture", () => { this.dragging = false; this.#refresh(); });
    slider.addEventListener("keydown", (event) => {
      const { frequency } = this.#target(character);
      const step = Math.max(0.05 * frequency, 0.0005);
      const to = { ArrowRight: frequency + step, ArrowUp: frequency + step, ArrowLeft: frequency - step, ArrowDown: frequency - step, Home: 0, PageUp: frequency * 1.5 + 0.001, PageDown: frequency / 1.5 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      set(Math.max(to, 0));
    });
    const element = h("li", {}, h("span", { class: "glyph", title: name }, character === " " ? "␣" : visible(character)), slider, input, forbid);
    const draw = () => {
      const target = this.#target(character);
      if (!target) return;
      const x = (value) => (W * Math.sqrt(value)) / this.scale;
      fill.setAttribute("width", Math.min(x(target.frequency), W));
      for (const mark of ["x1", "x2"]) { counted.setAttribute(mark, x(target.counted)); training.setAttribute(mark, x(target.training ?? 0)); grip.setAttribute(mark, Math.min(x(target.frequency), W - 1)); }
      training.classList.toggle("none", target.training === null);
      slider.setAttribute("aria-valuenow", (1000 * target.frequency).toFixed(2));
      slider.setAttribute("aria-valuetext", `${(1000 * target.frequency).toFixed(2)} per mille, counted ${(1000 * target.counted).toFixed(2)}`);
      if (document.activeElement !== input) input.value = Number((1000 * target.frequency).toPrecision(3));
      element.classList.toggle("edited", this.edits.has(character));
      element.classList.toggle("forbidden", target.frequency === 0 && this.edits.has(character));
      forbid.setAttribute("aria-pressed", String(this.edits.get(character) === 0));
    };
    return { element, draw };
  }

  #refresh() {
    if (!this.dragging) this.scale = this.#scale();
    this.bars?.forEach((bar) => bar.draw());
    if (this.reset) this.reset.disabled = !this.edits.size;
    if (this.weightInputs) for (const [name, { input, output }] of Object.entries(this.weightInputs)) { if (document.activeElement !== input) input.value = this.known.weights[name]; output.textContent = number(Number(input.value)); }
  }

  // --- weights, worth ---

  #drawWeights() {
    this.weightInputs = {};
    const send = () => this.sendWeights(Object.fromEntries(Object.entries(this.weightInputs).map(([name, { input }]) => [name, Number(input.value)])));
    const rows = WEIGHTS.map(([name, title, note, low, high, step]) => {
      const value = this.known.weights[name];
      const output = h("output", { for: `weight-${name}` }, number(value));
      const input = h("input", { id: `weight-${name}`, type: "range", min: Math.min(low, value), max: Math.max(high, value), step, "aria-describedby": `note-${name}`, oninput: () => { output.textContent = number(Number(input.value)); send(); } });
      input.value = value;
      this.weightInputs[name] = { input, output };
      return h("div", { class: "weight" }, h("label", { for: `weight-${name}` }, title), output, input, h("small", { id: `note-${name}` }, note));
    });
    this.weightBox.replaceChildren(h("h3", {}, "What counts how much"), ...rows,
      h("div", { class: "buttons" }, h("button", { type: "button", class: "button", onclick: () => this.#put({ weights: null }).then(() => { this.known && this.#drawWeights(); }) }, "As the model suggests")));
  }

  #drawWorth() {
    const told = h("div", { "aria-live": "polite" });
    const ask = async () => {
      told.replaceChildren(h("p", { class: "note" }, "Measuring…"));
      try {
        const { sources, lines, note } = await get(`/documents/${this.document}/worth`);
        const most = Math.max(1, ...sources.map((one) => Math.abs(one.bits)));
        told.replaceChildren(
          sources.length ? h("ul", { class: "bits" }, sources.map((one) => h("li", {}, h("span", { title: one.source }, one.source), h("meter", { min: 0, max: most, value: Math.max(0, one.bits), "aria-label": `${one.source}, bits per character` }), h("b", {}, `${one.bits > 0 ? "+" : one.bits < 0 ? "−" : ""}${Math.abs(one.bits).toFixed(2)}`)))) : h("p", {}, "Nothing is known yet, so there is nothing to measure."),
          h("p", { class: "note" }, `Bits per character over what the model expects by itself, on ${count(lines, "line")}; ${note}.`));
      } catch (error) { told.replaceChildren(); complain(error); }
    };
    this.worthBox.replaceChildren(h("h3", {}, "What is this worth?"), h("p", { class: "note" }, "How much each source tells about these lines."), h("button", { type: "button", class: "button", onclick: ask }, "Measure"), told);
  }
}
