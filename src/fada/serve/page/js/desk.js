// The desk: a page beside its lines, and everything that is done to them.

import { get, hear, patch, post, put, remove } from "./api.js";
import { button, complain, confirmed, count, dialog, h, icon, menu, progress, speak, toast, when } from "./dom.js";
import { openExport, openLearn, openSettings } from "./document.js";
import { actionOf, help } from "./keys.js";
import { Knowledge } from "./knowledge.js";
import { Row, marked } from "./row.js";
import { savingState, sendAll, watchSaving } from "./saving.js";
import { Signs } from "./signs.js";
import { pointAt } from "./text.js";
import { Viewer } from "./viewer.js";

const HARD = 0.3; // expected word error above which a draft hinders more than it helps
const SAVING = { saved: "Saved", saving: "Saving…", waiting: "Not saved yet: no answer. Kept in this browser.", conflict: "A line was changed elsewhere" };
const remembered = (name, usual) => { try { return JSON.parse(localStorage.getItem(`fada.${name}`)) ?? usual; } catch { return usual; } };
const remember = (name, value) => { try { localStorage.setItem(`fada.${name}`, JSON.stringify(value)); } catch { /* private window */ } };

const touched = () => matchMedia("(pointer: coarse)").matches; // a keyboard on the screen comes only when it is asked for

/** How many characters all names begin with alike, up to a sign that divides; none if nothing would be left of one. */
function sharedStart(names) {
  let alike = 0;
  while (names.length > 1 && names.every((name) => alike < name.length && name[alike] === names[0][alike])) alike++;
  const cut = (/^.*[^\p{L}\p{N}]/u.exec(names[0]?.slice(0, alike) ?? "")?.[0] ?? "").length;
  return names.every((name) => name.length > cut) ? cut : 0;
}

/** Who wrote a version of a line, in words. */
const writer = (by) => ({ reader: "the machine", file: "from the file" })[by] ?? by.replace(/^undo:\d+:/, "undone by ");

/** Grey shapes where lines will be. */
const bones = () => h("div", { class: "bones", "aria-hidden": "true" }, [88, 94, 72, 90, 84].map((wide) => h("div", {}, h("i", {}), h("i", { class: `wide-${wide}` }))));

export class Desk {
  /** Open a document in `main`, with its bar in `top`; `go(hash)` leaves for another place. */
  constructor(main, top, go) {
    Object.assign(this, { main, top, go, rows: new Map(), order: [], active: null, cutting: false, read: new Map() });
    this.signs = new Signs({
      insert: (character) => this.active?.insert(character),
      closed: () => this.active?.field.focus({ preventScroll: true }),
    });
    this.viewer = new Viewer({
      choose: (id) => this.rows.get(id)?.focus(),
      drawn: (outline) => this.#draw(outline),
      shaped: (id, outline, baseline) => this.#shape(id, outline, baseline),
      mode: () => this.active?.field.focus({ preventScroll: true }),
    });
    this.list = h("ol", { class: "lines", "aria-label": "Lines" });
    this.foot = h("div", { class: "foot" });
    this.pane = h("section", { class: "rows", "aria-label": "Lines of the page" }, h("div", { class: "scroll" }, this.list, this.foot), this.signs.element);
    this.drawer = new Knowledge({ page: () => this.page?.id, close: () => this.#drawer(false) });
  }

  async open(documentNumber, pageNumber) {
    const [document_, settings] = await Promise.all([get(`/documents/${documentNumber}`), get("/settings")]);
    if (this.closed) return;
    this.document = document_;
    this.settings = { ...settings, follow: remembered("follow", true) };
    this.main.className = "desk";
    this.main.dataset.pane = "lines";
    this.main.classList.toggle("colours", settings.confidence_colours);
    this.main.replaceChildren(this.viewer.element, this.pane, this.drawer.element);
    this.#bar();
    this.leave = [
      hear({ line: (line) => this.#heardLine(line), page: (page) => this.#heardPage(page), job: (job) => this.#heardJob(job), knowledge: (told) => told.document === this.document.id && this.drawer.elsewhere(told.version), lost: () => this.reload(), online: () => this.#savingShown() }),
      watchSaving(() => this.#savingShown()),
    ];
    this.onkey = (event) => this.#key(event);
    addEventListener("keydown", this.onkey);
    this.#loadSigns();
    const first = document_.pages.find((page) => page.id === pageNumber) ?? document_.pages[0];
    if (first) await this.#openPage(first.id, !touched());
    else await this.#pageless();
  }

  close() {
    this.closed = true;
    this.leave?.forEach((end) => end());
    removeEventListener("keydown", this.onkey);
    for (const row of this.rows.values()) row.leave();
    this.drawer.leave();
    this.main.removeAttribute("data-pane");
  }

  /** The palette; asked for again until it comes, and when what the model can write, or its use, may have changed. */
  async #loadSigns() {
    try { this.signs.set(await get(`/documents/${this.document.id}/signs`)); } catch (error) {
      if (error.passing && !this.closed) setTimeout(() => this.#loadSigns(), 2000);
    }
  }

  // --- the bar ---

  #bar() {
    this.pages = h("select", { class: "pages", "aria-label": "Page", onchange: () => this.go(`#/d/${this.document.id}/p/${this.pages.value}`) });
    this.before = button("back", "Previous page", () => this.#turn(-1), { key: "Alt Page ↑" });
    this.after = button("next", "Next page", () => this.#turn(1), { key: "Alt Page ↓" });
    this.counted = h("span", { class: "counted" });
    this.title = h("h1", {});
    this.saving = h("span", { class: "saving", role: "status" });
    const act = (name) => () => this.act(name);
    this.switch = button("page", "Page or lines", act("picture"), { key: "Alt P", kind: "narrow" });
    this.knows = button("book", "Knowledge: what is known of the text", act("knowledge"), { text: "Knowledge", key: "Alt K", "aria-expanded": "false" });
    const more = button("gear", "Settings and view", null);
    this.top.className = "bar";
    this.top.replaceChildren(
      h("a", { class: "brand", href: "#/", "aria-label": "fada: all documents" }, icon("back"), h("span", {}, "fada")),
      this.title,
      h("nav", { "aria-label": "Pages" }, this.before, this.pages, this.after),
      this.counted,
      h("span", { class: "grow" }),
      this.saving, this.switch, this.knows,
      button(null, "Signs: characters that the keyboard has not", act("signs"), { text: "Signs", key: "Alt S" }),
      button("learn", "Learn from the confirmed lines", act("learn"), { text: "Learn", key: "Alt L" }),
      button("out", "Export", act("export"), { text: "Export", key: "Alt E" }),
      menu(more, () => this.#views()),
      button("help", "Help: all keys", act("help"), { key: "?" }));
    const sign = this.top.querySelectorAll(".button");
    for (const one of sign) if (one.textContent === "Signs") one.prepend(h("span", { class: "glyph icon", "aria-hidden": "true" }, "⁊"));
    this.#pagesShown();
    this.#savingShown();
  }

  #views() {
    const { settings } = this;
    const draft = (value, text, note) => ({ text, note, checked: settings.drafts === value, onclick: () => this.#set({ drafts: value }) });
    return [
      { text: "Colours of confidence", checked: settings.confidence_colours, key: "Alt C", onclick: () => this.act("colours") },
      { text: "Proposals while typing", checked: settings.follow, key: "Alt F", onclick: () => this.act("follow") }, null,
      draft("auto", "Draft where it is good", `an empty line if more than ${100 * HARD} % of its words seem wrong`),
      draft("always", "Always begin with the draft"), draft("never", "Always begin with an empty line"), null,
      { text: "Settings…", icon: "gear", onclick: () => openSettings(settings, this.document, (given) => this.#set(given), () => this.reload()) },
      { text: "Interface for programs", icon: "lines", onclick: () => window.open("/docs", "_blank", "noopener") },
    ];
  }

  async #set(change) {
    const { follow, ...kept } = { ...this.settings, ...change };
    this.settings = { ...kept, follow };
    remember("follow", follow);
    this.main.classList.toggle("colours", kept.confidence_colours);
    try { await put("/settings", kept); } catch (error) { complain(error); }
    await this.reload();
  }

  #pagesShown() {
    const { name, pages } = this.document;
    this.title.textContent = this.title.title = name;
    document.title = `${name} · fada`;
    const shared = sharedStart(pages.map((page) => page.name));
    this.pages.replaceChildren(...pages.map((page) => h("option", { value: page.id, selected: page.id === this.page?.id },
      `${page.number}. ${page.name.slice(shared)}${page.state === "read" ? ` · ${page.confirmed}/${page.lines}` : page.state === "failed" ? " · failed" : " · …"}`)));
    this.pages.parentElement.hidden = pages.length < 2;
    const at = pages.findIndex((page) => page.id === this.page?.id);
    this.before.disabled = at <= 0;
    this.after.disabled = at < 0 || at >= pages.length - 1;
  }

  #countShown() {
    const lines = this.order.map((id) => this.rows.get(id).line);
    const sure = lines.filter((line) => line.state === "confirmed").length;
    const all = lines.filter((line) => !["bad", "not_text"].includes(line.state)).length;
    this.counted.replaceChildren(progress(sure, all, "Confirmed lines of this page"), h("span", {}, `${sure} of ${all} confirmed`));
    const page = this.document.pages.find((one) => one.id === this.page?.id);
    if (page) { page.confirmed = sure; page.lines = lines.length; }
  }

  #savingShown() {
    const state = savingState();
    this.saving.dataset.state = state;
    this.saving.textContent = SAVING[state];
  }

  // --- pages ---

  /** A document without pages: they are being found, or were not. */
  async #pageless() {
    const job = (await get("/jobs")).find((one) => one.document === this.document.id && one.kind === "read");
    if (this.closed || this.turning) return;
    const sought = ["queued", "running"].includes(job?.state);
    this.foot.replaceChildren(...sought ? [h("p", { class: "nothing" }, "The pages are being found…"), bones()] : [h("p", { class: "nothing" }, `No page could be read${job?.message ? `: ${job.message}` : "."}`)]);
  }

  /** Show a page, unless another one is wished for before it comes. */
  async #openPage(id, focus = true) {
    this.turning = id;
    let page;
    try { page = await get(`/pages/${id}`); } catch (error) {
      if (this.turning === id) this.turning = this.page?.id;
      throw error;
    }
    if (this.closed || this.turning !== id) return;
    for (const row of this.rows.values()) row.leave();
    this.rows.clear();
    this.active = null;
    this.page = page;
    this.list.replaceChildren();
    this.#lines(page.lines);
    this.viewer.show(page, this.document.direction === "rtl");
    this.#pagesShown();
    this.drawer.show(this.document.id);
    if (focus) this.#first()?.focus();
  }

  #first() {
    const rows = this.order.map((id) => this.rows.get(id));
    return rows.find((row) => ["draft", "typed"].includes(row.line.state)) ?? rows[0];
  }

  /** Show these lines; rows that are there stay, with what is being typed in them. */
  #lines(lines) {
    const there = new Set(lines.map((line) => line.id));
    for (const [id, row] of this.rows) {
      if (there.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
      if (this.active === row) this.active = null;
    }
    this.order = lines.map((line) => line.id);
    lines.forEach((line, at) => {
      const row = this.rows.get(line.id);
      if (row) { row.hear(line); row.name(at); } else this.rows.set(line.id, new Row(line, this));
      const { element } = this.rows.get(line.id);
      if (this.list.children[at] !== element) this.#place(element, at);
    });
    this.#countShown();
    this.#footShown();
  }

  #place(element, at) {
    const held = element.contains(document.activeElement) ? document.activeElement : null;
    this.list.insertBefore(element, this.list.children[at] ?? null);
    held?.focus({ preventScroll: true });
  }

  #footShown() {
    const { page } = this;
    const at = this.document.pages.findIndex((one) => one.id === page.id);
    const parts = [];
    if (page.state === "failed") parts.push(h("p", { class: "nothing" }, `This page could not be read: ${page.message}`));
    else if (!page.lines.length && page.state === "read") parts.push(h("p", { class: "nothing" }, "No line was found here. Draw one on the page (Alt D)."));
    else if (!page.lines.length) parts.push(h("p", { class: "nothing" }, "Its lines are being found…"), bones());
    else if (page.state !== "read") parts.push(h("p", { class: "nothing" }, "Its lines are being read…"));
    if (page.state === "read" && page.message) parts.push(h("p", { class: "note" }, page.message));
    if (at < this.document.pages.length - 1) {
      this.onward = h("button", { type: "button", class: "button", onclick: () => this.#turn(1) }, "Next page", icon("next"));
      parts.push(this.onward);
    } else this.onward = null;
    this.foot.replaceChildren(...parts);
  }

  /** See everything again as the server has it. */
  reload() {
    if (this.loading) { this.again = true; return this.loading; }
    this.loading = (async () => {
      do {
        this.again = false;
        try {
          this.document = await get(`/documents/${this.document.id}`);
          if (!this.turning && this.document.pages.length) await this.#openPage(this.document.pages[0].id, !touched());
          else if (this.page) {
            const { id } = this.page;
            const page = await get(`/pages/${id}`);
            if (this.closed) return;
            if (this.page.id !== id) { this.again = true; continue; } // turned meanwhile
            this.page = page;
            this.#lines(page.lines);
            this.viewer.show(page, this.document.direction === "rtl");
            if (!this.active && document.activeElement === document.body && !touched()) this.#first()?.focus();
          } else if (!this.document.pages.length) await this.#pageless();
          this.#pagesShown();
        } catch (error) {
          if (error.status === 404 && !this.closed) { this.go("#/"); break; }
        }
      } while (this.again);
      this.loading = null;
    })();
    return this.loading;
  }

  #turn(by) {
    const at = this.document.pages.findIndex((page) => page.id === this.page?.id);
    const to = this.document.pages[at + by];
    if (to) this.go(`#/d/${this.document.id}/p/${to.id}`);
  }

  /** Another page of the same document. */
  async turnTo(id) {
    if (id === this.turning) return;
    this.turning = id;
    await sendAll();
    if (id === this.turning) await this.#openPage(id, !touched());
  }

  // --- what is heard ---

  #heardLine(line) {
    this.read.set(line.id, performance.now());
    if (line.page !== this.page?.id) return;
    const row = this.rows.get(line.id);
    if (!row) { this.reload(); return; }
    row.hear(line);
    this.viewer.update(line);
    this.#countShown();
  }

  #heardPage(page) { if (page.document === this.document.id) this.reload(); }

  #heardJob(job) {
    if (job.document !== this.document.id) return;
    this.drawer.heard(job);
    if (["done", "failed", "cancelled"].includes(job.state)) {
      for (const id of [job.result?.lines ?? []].flat()) this.read.set(id, performance.now());
      if (["lines", "again"].includes(job.kind)) for (const row of this.rows.values()) row.element.classList.remove("reading");
      if (job.kind === "adapt" && job.state === "done") {
        const { model, before, after } = job.result ?? {};
        const measured = typeof before === "number" && typeof after === "number";
        const told = measured ? ` Character error on lines it did not learn from: ${before.toFixed(1)} % before, ${after.toFixed(1)} % after.${model && after >= before ? " So few lines cannot tell whether that is a gain." : ""}` : "";
        toast(`${model ? `Learnt from the confirmed lines as “${model}”; the document is read with it.` : "It reads worse with these lines, so the model stays as it was: check that they are right."}${told}`, { seconds: 30 });
      }
      if (job.kind !== "lines") { this.reload(); this.#loadSigns(); }
    }
  }

  /** Mark lines that are being read, unless that was told of since `began`. */
  #reading(began, ...ids) {
    for (const id of ids) if ((this.read.get(id) ?? 0) < began) this.rows.get(id)?.element.classList.add("reading");
  }

  // --- what rows ask of the desk ---

  key(line) { return `${this.document.created}.${line.id}`; }

  startsEmpty(line) {
    const { drafts } = this.settings;
    return drafts === "never" || (drafts === "auto" && line.expected_word_error !== null && line.expected_word_error > HARD);
  }

  focused(row) {
    if (this.active !== row) {
      if (this.active) this.active.active = false;
      this.active = row;
      row.entered();
      this.viewer.follow(row.id);
    }
    row.element.scrollIntoView({ block: "nearest" });
  }

  seen(row, character) { if (row === this.active) this.viewer.see(character); }
  coding(row, code) { this.signs.coding(code); if (code !== null) row.element.scrollIntoView({ block: "nearest" }); }
  changed(row) { this.viewer.update(row.line); this.#countShown(); }

  gone(row, text) {
    toast(`Line ${row.line.order + 1} was deleted elsewhere.${text ? ` You had typed: ${text}` : ""}`, { bad: true });
    this.reload();
  }

  confirm(row) {
    const text = row.shown.trim();
    const { line } = row;
    if (!text) {
      toast("There is nothing to confirm. Type what stands there, or mark the line as not text (Alt N).");
      return;
    }
    if (row.saver.dirty || line.state !== "confirmed" || line.text !== text) row.confirm(text);
    if (!this.step(row, 1)) {
      if (this.#alone(1)) return;
      speak("The last line of the page.");
      (this.onward ?? this.foot).focus?.();
    }
  }

  /** To the line before or after; whether there is one. */
  step(row, by) {
    const next = this.rows.get(this.order[this.order.indexOf(row.id) + by]);
    next?.focus();
    return Boolean(next) || (by < 0 && this.#alone(by));
  }

  /** From a picture of one line to that of the one before or after; whether there is one. */
  #alone(by) {
    const at = this.document.pages.findIndex((page) => page.id === this.page.id);
    if (this.order.length > 1 || !this.document.pages[at + by]) return false;
    this.#turn(by);
    return true;
  }

  // --- actions ---

  #key(event) {
    if (document.querySelector("dialog[open]")) return;
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key === "?" && !typing) { event.preventDefault(); help(); return; }
    if (event.key === "Escape") { this.#escape(); return; }
    const action = actionOf(event);
    if (!action) return;
    event.preventDefault();
    this.act(action.name, this.active, action.place);
  }

  #escape() {
    if (this.cutting) this.#cut(false);
    else if (!this.signs.element.hidden) this.signs.toggle(false);
    else if (!this.drawer.element.hidden) this.#drawer(false);
  }

  async act(name, row = this.active, place = 0) {
    const ofDesk = {
      help, signs: () => { this.signs.toggle(); this.active?.element.scrollIntoView({ block: "nearest" }); }, knowledge: () => this.#drawer(this.drawer.element.hidden),
      export: () => openExport(this.document), learn: () => sendAll().then(() => openLearn(this.document, this.page?.id)),
      colours: () => this.#set({ confidence_colours: !this.settings.confidence_colours }),
      follow: () => { this.#set({ follow: !this.settings.follow }); speak(`Proposals ${this.settings.follow ? "on" : "off"}`); },
      previousPage: () => this.#turn(-1), nextPage: () => this.#turn(1),
      zoomIn: () => this.viewer.zoom(1.4), zoomOut: () => this.viewer.zoom(1 / 1.4), whole: () => this.viewer.fit(),
      draw: () => { this.#picture("page"); this.viewer.setMode("draw"); }, uncertain: () => this.#uncertain(),
      picture: () => this.#picture(this.main.dataset.pane === "page" ? "lines" : "page"),
    };
    const ofLine = {
      confirm: () => this.confirm(row), up: () => this.step(row, -1), down: () => this.step(row, 1), choose: () => row.choose(place),
      undo: () => this.#undo(row), history: () => this.#history(row), split: () => this.#split(row), join: () => this.#join(row),
      raise: () => this.#shift(row, -1), lower: () => this.#shift(row, 1), delete: () => this.#delete(row),
      bad: () => this.#state(row, "bad"), not_text: () => this.#state(row, "not_text"),
      play: () => row.play(), sure: () => { if (row.sure()) this.#uncertain(); },
      shape: () => { row.focus(); this.#picture("page"); this.viewer.setMode("shape"); },
    };
    try {
      if (ofDesk[name]) await ofDesk[name]();
      else if (row) await ofLine[name]?.();
    } catch (error) {
      if (error.status === 409) { toast("The line was changed elsewhere meanwhile; here it is as it is now."); await this.reload(); } else complain(error);
    }
  }

  #picture(pane) {
    this.main.dataset.pane = pane;
    this.switch.replaceChildren(icon(pane === "page" ? "lines" : "page"));
    if (this.active) this.viewer.follow(this.active.id, true); else this.viewer.fit();
  }

  #drawer(open) {
    this.drawer.element.hidden = !open;
    this.main.classList.toggle("knowing", open);
    this.knows.setAttribute("aria-expanded", String(open));
    if (open) this.drawer.show(this.document.id).then(() => this.drawer.focus()); else this.active?.field.focus({ preventScroll: true });
  }

  #uncertain() {
    const from = this.active ? this.order.indexOf(this.active.id) : 0;
    for (let n = 0; n <= this.order.length; n++) {
      const row = this.rows.get(this.order[(from + n) % this.order.length]);
      const { field } = row;
      if (n === 0 && row === this.active && !field.value) continue;
      const start = n === 0 && row === this.active ? pointAt(field.value, field.selectionEnd) : 0;
      const found = row.uncertain(start);
      if (!found) continue;
      row.focus();
      field.setSelectionRange(...found);
      speak(`Uncertain: ${field.value.slice(...found) || "the line"}`);
      return;
    }
    toast("No word of this page is uncertain.");
  }

  async #undo(row) {
    row.saver.took(await row.saver.after(() => post(`/lines/${row.id}/undo`, { version: row.line.version })));
    row.flash();
    speak("Undone");
  }

  async #state(row, state) {
    const { line } = row;
    const back = line.state === state;
    const was = line.text === line.reading ? "draft" : "typed";
    row.saver.want({ state: back ? was : state }, { soon: true });
    if (!back) this.step(row, 1);
  }

  async #history(row) {
    const steps = await row.history();
    const put_ = (step, shown) => {
      shown.close();
      row.put(step.text);
      if (step.state !== "draft") row.saver.want({ text: step.text, state: step.state }, { soon: true });
    };
    let shown = null;
    const list = h("ol", { class: "history", reversed: true }, steps.map((step, at) => h("li", {},
      h("div", { class: "text", dir: row.line.direction }, at ? marked(steps[at - 1].text, step.text) : step.text || h("em", {}, "empty")),
      h("div", { class: "note" }, `${step.state.replace("_", " ")} · ${writer(step.by)} · ${when(step.at)}`),
      at < steps.length - 1 && h("button", { type: "button", class: "button", onclick: () => put_(step, shown) }, "Take this"))).reverse());
    shown = dialog(`History of line ${row.line.order + 1}`, list);
  }

  async #split(row) {
    const at = row.cut();
    if (at === null || row.ghost) { this.#cut(true, row); return; }
    await this.cutAt(row, at);
  }

  #cut(on, row) {
    this.cutting = on;
    this.main.classList.toggle("cutting", on);
    if (on) { row.focus(); toast("Click the picture of the line where it shall be split; Enter splits it in the middle, Escape leaves it whole."); }
  }

  /** To a line when what was asked for is done, unless its reader has gone elsewhere meanwhile. */
  #arrive(id, from) {
    const now = document.activeElement;
    if (now === from || now === document.body) this.rows.get(id)?.focus();
  }

  async cutAt(row, at) {
    this.#cut(false);
    const from = document.activeElement;
    try {
      const began = performance.now();
      const [, second] = await row.saver.after(() => post(`/lines/${row.id}/split`, { version: row.line.version, at }));
      await this.reload();
      this.#reading(began, row.id, second.id);
      this.#arrive(second.id, from);
      speak("Split in two");
    } catch (error) { complain(error); await this.reload(); }
  }

  async #join(row) {
    const next = this.rows.get(this.order[this.order.indexOf(row.id) + 1]);
    if (!next) { toast("There is no line after this one."); return; }
    const began = performance.now(), from = document.activeElement;
    const joined = await row.saver.after(() => next.saver.after(() => post("/lines/join", { lines: [row, next].map(({ line: { id, version } }) => ({ id, version })) })));
    await this.reload();
    this.#reading(began, joined.id);
    this.#arrive(joined.id, from);
    speak("Joined");
  }

  async #shift(row, by) {
    const at = this.order.indexOf(row.id);
    if (at + by < 0 || at + by >= this.order.length) return;
    const order = [...this.order];
    [order[at], order[at + by]] = [order[at + by], order[at]];
    const from = document.activeElement;
    const page = await put(`/pages/${this.page.id}/order`, { lines: order });
    this.page = page;
    this.#lines(page.lines);
    this.#arrive(row.id, from);
    speak(`Now line ${at + by + 1}`);
  }

  async #delete(row) {
    const next = this.order[this.order.indexOf(row.id) + 1] ?? this.order[this.order.indexOf(row.id) - 1];
    const from = document.activeElement;
    const line = await row.saver.after(async () => {
      const { line: last } = row;
      await remove(`/lines/${last.id}?version=${last.version}`);
      return last;
    });
    await this.reload();
    this.#arrive(next, from);
    toast(`Line ${line.order + 1} is deleted.`, { action: "Bring it back", onaction: () => this.#restore(line).catch(complain), seconds: 15 });
  }

  async #restore(line) {
    const from = document.activeElement;
    const made = await post(`/pages/${line.page}/lines`, { outline: line.outline, baseline: line.baseline });
    if (line.state !== "draft") await patch(`/lines/${made.id}`, { version: made.version, text: line.text, state: line.state });
    await this.reload();
    this.#arrive(made.id, from);
  }

  async #draw(outline) {
    const began = performance.now(), from = document.activeElement;
    try {
      const line = await post(`/pages/${this.page.id}/lines`, { outline });
      await this.reload();
      this.#reading(began, line.id);
      this.#arrive(line.id, from);
    } catch (error) { complain(error); }
  }

  async #shape(id, outline, baseline) {
    const row = this.rows.get(id), from = document.activeElement;
    try {
      const began = performance.now();
      const line = await row.saver.after(() => put(`/lines/${id}/outline`, { version: row.line.version, outline, baseline }));
      row.hear(line);
      this.#reading(began, id);
      this.viewer.update(line);
      this.#arrive(id, from);
    } catch (error) { complain(error); await this.reload(); }
  }
}

/** Ask, then delete a document. */
export async function deleteDocument({ id, name, confirmed: sure }) {
  const what = sure ? ` ${count(sure, "confirmed line")} will be gone.` : "";
  if (!(await confirmed(`Delete “${name}”?`, `The document, its pictures and its lines are deleted from the project folder.${what}`, "Delete"))) return false;
  await remove(`/documents/${id}`);
  return true;
}
