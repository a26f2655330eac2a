// One line of the page: its picture, its text, what the machine proposes.
//
// The field is a textarea over a mirror of the same letters. The mirror carries what a textarea cannot: colours of
// confidence, and the proposal that follows what is typed. What is typed stands first in both, so they break alike.

import { get, post } from "./api.js";
import { button, calmed, complain, h, icon, menu, percent, speak } from "./dom.js";
import { Saver } from "./saving.js";
import { changedWords, difference, indexOf, pointAt, points, unchanged, words } from "./text.js";

const DOUBT = 0.7; // a word with a character below it is uncertain
const READ = 0, TYPED = 1, SURE = 2; // of a code point: the machine's, somebody's, or one of a word that was said to be right
const STATES = { draft: "draft", typed: "typed", confirmed: "confirmed", bad: "bad line", not_text: "not text" };
const joined = (characters) => characters.map((one) => one.character).join("");

/** The box around an outline: [width, height]. */
function extent(outline) {
  const xs = outline.map(([x]) => x), ys = outline.map(([, y]) => y);
  return [Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys)].map((v) => Math.max(1, Math.round(v)));
}

function digest(value) {
  let sum = 5381;
  for (const character of JSON.stringify(value)) sum = (sum * 33 + character.charCodeAt(0)) >>> 0;
  return sum.toString(36);
}

/** A text with what is new in it marked, and what is gone struck out. */
export function marked(before, after) {
  return difference(points(before), points(after)).map(({ kind, items }) =>
    (kind === "same" ? items.join("") : h(kind === "gone" ? "del" : "ins", {}, items.join(""))));
}

export class Row {
  /** desk: `{settings, signs, key(line), focused(row), confirm(row), step(row, by), seen(row, character), act(name, row)}`. */
  constructor(line, desk) {
    this.desk = desk;
    this.ghost = "";
    this.alternatives = line.alternatives;
    this.characters = line.characters;
    this.origins = [];
    this.undone = [];
    this.past = [];
    this.turn = 0;
    this.saver = new Saver(line, desk.key(line), {
      saved: (saved) => this.#saved(saved),
      conflict: (mine, theirs) => this.#conflict(mine, theirs),
      state: (state) => { this.element.dataset.saving = state; },
      gone: (text) => desk.gone(this, text),
    });
    this.#build();
    this.#take(line);
    const kept = this.saver.kept();
    if (kept?.text !== undefined) this.#set(kept.text, TYPED);
  }

  get line() { return this.saver.line; }
  get id() { return this.saver.line.id; }
  get text() { return this.field.value; }
  get shown() { return this.field.value + this.ghost; }

  // --- building ---

  #build() {
    const { line } = this;
    this.picture = h("img", { alt: "", loading: "lazy", decoding: "async", draggable: "false" });
    this.eye = h("span", { class: "eye", hidden: true });
    this.crop = h("div", { class: "crop", onpointerdown: (event) => this.#cropPressed(event) }, this.picture, this.eye);
    if (line.audio) this.crop = h("div", { class: "crop sound" }, this.sound = h("audio", { controls: true, preload: "metadata", src: line.audio }));
    this.mirror = h("div", { class: "mirror", "aria-hidden": "true" });
    this.field = h("textarea", {
      rows: 1, spellcheck: "false", autocapitalize: "off", autocomplete: "off", autocorrect: "off", enterkeyhint: "next",
      oninput: (event) => this.#typed(event), onkeydown: (event) => this.#key(event),
      onfocus: () => this.desk.focused(this), onblur: () => this.saver.send(),
      onselect: () => this.#look(), onkeyup: () => this.#look(), onclick: () => this.#look(),
      oncompositionend: () => this.#follow(),
    });
    this.number = button("more", "Actions", null, {});
    this.number.replaceChildren(h("span", { class: "digits" }), icon("more"));
    this.mark = h("span", { class: "mark" });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Other readings" });
    this.trouble = h("div", { class: "trouble", role: "alert" });
    this.element = h("li", { class: "line", "data-line": line.id },
      h("div", { class: "gutter" }, menu(this.number, () => this.#entries()), this.mark),
      h("div", { class: "body" }, this.crop, h("div", { class: "field" }, this.mirror, this.field), this.chips, this.trouble));
  }

  #entries() {
    const entry = (name, text, picture, key, rest) => ({ text, icon: picture, key, onclick: () => this.desk.act(name, this), ...rest });
    return [
      entry("confirm", "Confirm", "check", "Enter"),
      entry("undo", "Undo the last change", "undo", "Alt Z"),
      entry("history", "History", "clock", "Alt H"), null,
      entry("split", "Split at the cursor", "cut", "Alt X"),
      entry("join", "Join with the next line", "join", "Alt J"),
      entry("raise", "Move up", "up", "Alt Shift ↑"), entry("lower", "Move down", "down", "Alt Shift ↓"),
      entry("shape", "Move the outline", "shape", "Alt O"), null,
      entry("bad", this.line.state === "bad" ? "Not bad after all" : "Bad line", "bad", "Alt B", { note: "cut wrongly, or not to be read" }),
      entry("not_text", this.line.state === "not_text" ? "It is text after all" : "Not text", "none", "Alt N"),
      entry("delete", "Delete the line", "trash", "Alt Del"),
    ];
  }

  // --- what the server says ---

  /** Show a line as the server has it. */
  #take(line) {
    const { element, field } = this;
    element.dataset.state = line.state;
    this.alternatives = line.alternatives;
    this.characters = line.characters;
    this.hides = line.state === "draft" && this.desk.startsEmpty(line);
    const text = this.hides ? "" : line.text;
    if (field.value !== text) {
      const at = field.selectionStart;
      const end = at === field.value.length;
      field.value = text;
      if (document.activeElement === field) field.setSelectionRange(end ? text.length : at, end ? text.length : at);
      this.origins = [];
    }
    if (line.state !== "typed" || this.origins.length !== points(text).length) this.origins = this.#originsOf(line, text);
    this.before = field.value;
    this.beforeAt = field.selectionStart;
    this.ghost = this.hides ? line.text : "";
    field.dir = this.mirror.dir = this.chips.dir = line.direction;
    this.outlined(line);
    this.mark.replaceChildren();
    if (line.state === "confirmed") this.mark.append(icon("check"));
    else if (line.state === "bad") this.mark.append(icon("bad"));
    else if (line.state === "not_text") this.mark.append(icon("none"));
    this.mark.title = STATES[line.state];
    this.name(line.order);
    element.classList.toggle("reading", line.state === "draft" && line.confidence === null && !line.text && this.desk.page.state !== "read");
    this.draw();
  }

  /** Who wrote each code point of a line that comes from the server: what is not as it was read, somebody typed. */
  #originsOf(line, text) {
    if (line.state === "draft") return points(text).map(() => READ);
    return unchanged(line.reading ?? "", text).map((kept) => (kept && line.state === "typed" ? READ : TYPED));
  }

  /** The picture, if the outline is another one. */
  outlined(line) {
    const outline = digest([line.outline, line.baseline]);
    if (this.outline === outline || line.audio) return;
    this.outline = outline;
    const [width, height] = extent(line.outline);
    this.picture.width = width;
    this.picture.height = height;
    this.picture.src = `/api/lines/${line.id}/image?v=${outline}`;
    this.crop.style.setProperty("--wide", width);
    this.crop.style.setProperty("--tall", height);
  }

  name(order) {
    this.number.querySelector(".digits").textContent = order + 1;
    this.number.setAttribute("aria-label", `Actions of line ${order + 1}`);
    const state = STATES[this.line.state];
    this.field.setAttribute("aria-label", `Line ${order + 1}, ${state}`);
    if (this.line.state === "draft" && this.hides) this.field.placeholder = "";
  }

  /** Somebody else, or the machine, changed the line. */
  hear(line) {
    const { reading } = this.line;
    if (!this.saver.hear(line)) return;
    const before = this.shown;
    this.#keepGhost(() => this.#take(line));
    this.element.classList.remove("reading");
    if (before !== this.shown) this.flash();
    if (this.ghost && this.active && line.state === "typed" && line.reading !== reading) this.#follow(); // with what is known now
  }

  #saved(line) {
    const typed = this.field.value;
    this.element.dataset.state = line.state;
    if (line.text === typed) {
      if (line.characters.length && !this.ghost) this.characters = line.characters;
      if (line.state !== "draft") this.hides = false;
      if (document.activeElement === this.field && line.state === "typed") this.#shownMark(line);
      else this.#keepGhost(() => this.#take(line));
    } else if (this.saver.wanted === null) this.#take(line); // taken back, or theirs
    this.desk.changed(this);
  }

  #shownMark(line) { this.mark.replaceChildren(); this.mark.title = STATES[line.state]; this.draw(); }

  /** A proposal stands for as long as the text that it follows. */
  #keepGhost(run) {
    const { ghost, text } = this;
    run();
    if (this.line.state === "typed" && this.text === text) { this.ghost = ghost; this.draw(); }
  }

  flash() {
    this.element.classList.remove("changed");
    void this.element.offsetWidth;
    this.element.classList.add("changed");
  }

  // --- showing ---

  /** Confidence of each code point of the field: null where somebody wrote it. */
  #confidences() {
    const text = this.field.value;
    const all = points(text);
    const { characters } = this;
    if (["confirmed", "bad", "not_text"].includes(this.line.state) || !characters.length) return all.map(() => null);
    if (!joined(characters).startsWith(text)) return all.map(() => null);
    return all.map((_, i) => (this.origins[i] === READ ? characters[i].confidence : null));
  }

  /** The mirror: colours, and the proposal. */
  draw() {
    const text = this.field.value;
    const levels = this.#confidences().map((c, at) => (this.origins[at] === SURE ? "sure" : c === null || c >= 0.9 ? "" : c >= DOUBT ? "fair" : c >= 0.45 ? "low" : "poor"));
    const parts = [];
    points(text).forEach((character, at) => {
      const level = /\s/u.test(character) ? "" : levels[at];
      if (parts.length && parts.at(-1).level === level) parts.at(-1).text += character;
      else parts.push({ level, text: character });
    });
    const made = parts.map(({ level, text: part }) => (level ? h("span", { class: level }, part) : part));
    if (this.ghost) made.push(h("wbr"), h("span", { class: "ghost" }, this.ghost));
    this.mirror.replaceChildren(...made, "\u200b");
    this.field.setAttribute("aria-description", this.ghost ? `Proposal: ${this.ghost}` : "");
    if (this.active) this.#drawChips();
  }

  #drawChips() {
    const { line } = this;
    const now = this.shown;
    const found = [];
    if (line.reading && line.reading !== now) found.push({ text: line.reading, label: "as read" });
    if (line.plain && line.plain !== line.reading && line.plain !== now) found.push({ text: line.plain, label: "without knowledge" });
    for (const { text } of this.alternatives) {
      if (text.trim() !== now.trim() && found.every((one) => one.text !== text) && found.length < (line.state === "draft" ? 6 : 3)) found.push({ text });
    }
    this.offered = found;
    const told = line.state === "draft" ? line.expected_word_error : null;
    const all = JSON.stringify([now, found, told]);
    if (this.chips.childElementCount && this.drawn === all) return; // one that is being pressed stays
    this.drawn = all;
    this.chips.replaceChildren(...found.map(({ text, label }, at) => {
      const changes = changedWords(now, text);
      const shown = changes.slice(0, 3).flatMap((change, i) => [i ? " · " : "", this.#struck(change), change.new && h("ins", {}, change.new)]);
      return h("button", {
        type: "button", class: "chip", title: text, tabindex: -1, "aria-label": `${label ? `${label}: ` : ""}${text}`,
        onclick: () => { this.put(text); this.field.focus(); },
      }, h("kbd", {}, String(at + 1)), label && h("small", {}, label), h("span", {}, shown, changes.length > 3 ? " …" : ""));
    }));
    if (told !== null) this.chips.append(h("span", { class: "certainty" }, `about ${percent(1 - told)} of the words right`));
  }

  /** What another reading has not; where that is long, what it has instead says enough. */
  #struck({ gone, new: instead }) {
    if (!gone || (instead && gone.split(" ").length > 2)) return "";
    return [h("del", {}, gone), instead ? " " : ""];
  }

  /** Take one of the other readings, the first is 1. */
  choose(place) {
    const found = this.offered?.[place - 1];
    if (found) { this.put(found.text); speak(found.text); }
  }

  set active(on) {
    this.element.classList.toggle("active", on);
    if (on) { this.element.setAttribute("aria-current", "true"); this.#drawChips(); } else { this.element.removeAttribute("aria-current"); this.eye.hidden = true; }
  }

  get active() { return this.element.classList.contains("active"); }

  /** Show the character under the cursor on the picture. */
  #look() {
    if (!this.active) return;
    const text = this.field.value;
    let at = pointAt(text, this.field.selectionStart);
    const { characters } = this;
    if (at >= points(text).length && !this.ghost) at--;
    const found = joined(characters).startsWith(text.slice(0, this.field.selectionStart)) ? characters[Math.max(0, at)] : this.#near(at);
    this.eye.hidden = !found;
    if (found) {
      this.eye.style.left = percent(found.start, 2).replace(" ", "");
      this.eye.style.width = percent(Math.max(found.end - found.start, 0.002), 2).replace(" ", "");
    }
    this.desk.seen(this, found ?? null);
  }

  /** The cell of a code point when text and alignment differ for a moment: counted from the end. */
  #near(at) {
    const rest = points(this.field.value).length - at;
    return this.characters.at(-rest) ?? null;
  }

  /** Where a cut between the characters at the cursor lies, in fractions of the width. */
  cut() {
    const at = pointAt(this.field.value, this.field.selectionStart);
    const { characters } = this;
    const left = characters[at - 1], right = characters[at];
    const spans = [left, right].filter(Boolean);
    if (!spans.length) return null;
    if (!left || !right) return null;
    return (Math.min(left.end, right.end) + Math.max(left.start, right.start)) / 2;
  }

  #cropPressed(event) {
    const box = this.picture.getBoundingClientRect();
    const where = (event.clientX - box.left) / box.width;
    event.preventDefault();
    if (this.desk.cutting) { this.desk.cutAt(this, where); return; }
    this.focus();
    const at = this.characters.findIndex((one) => one.start <= where && where < one.end);
    const text = this.field.value;
    if (at >= 0 && joined(this.characters).startsWith(text.slice(0, indexOf(text, at)))) {
      const index = indexOf(text, at);
      this.field.setSelectionRange(index, index);
    }
    this.#look();
  }

  // --- typing ---

  focus(place = "end") {
    this.field.focus({ preventScroll: true });
    const at = place === "end" ? this.field.value.length : place;
    this.field.setSelectionRange(at, at);
    this.#look();
  }

  /** What is done when the row becomes the one that is worked at. */
  entered() {
    this.active = true;
    this.entering = this.line.state;
    if (this.line.state === "typed" && !this.ghost && this.field.selectionStart === this.field.value.length) this.#follow();
    this.#look();
  }

  #remember() {
    this.past.push([this.before ?? "", this.beforeAt ?? 0, this.origins]);
    if (this.past.length > 200) this.past.shift();
    this.undone = [];
  }

  /** The text is another one than `before`: what differs was written by `who`. */
  #wrote(before, who = TYPED) {
    const old = points(before), now = points(this.field.value);
    let start = 0, end = 0;
    while (start < old.length && start < now.length && old[start] === now[start]) start++;
    while (end < Math.min(old.length, now.length) - start && old.at(-1 - end) === now.at(-1 - end)) end++;
    const { origins } = this;
    this.origins = [...origins.slice(0, start), ...now.slice(start, now.length - end).map(() => who), ...origins.slice(origins.length - end, end ? undefined : 0)];
  }

  /** Another text in the field, without a proposal and without being asked for one; what is new in it was written by `who`. */
  #set(text, who) {
    const { field } = this;
    const before = field.value;
    if (before !== text) field.value = text;
    this.#wrote(before, who);
    this.before = text;
    this.beforeAt = field.selectionStart;
    this.ghost = "";
    this.hides = false;
    this.waiting = false;
    this.turn++;
    this.draw();
  }

  /** The line is right as it is seen. */
  confirm(text) {
    this.#set(text, READ);
    this.saver.want({ text, state: "confirmed" }, { soon: true });
  }

  /** A text that was chosen, not typed. */
  put(text) {
    this.before = this.field.value;
    this.beforeAt = this.field.selectionStart;
    this.#remember();
    this.field.value = text;
    this.field.setSelectionRange(text.length, text.length);
    this.ghost = "";
    this.#wrote(this.before);
    this.#changed();
    this.#align();
  }

  #changed() {
    this.before = this.field.value;
    this.beforeAt = this.field.selectionStart;
    this.saver.want({ text: this.field.value });
    this.draw();
    this.#look();
  }

  #typed(event) {
    const { field } = this;
    if (field.value.includes("\n")) { // pasted, or Enter of a keyboard that sends no keys
      const flat = (text) => text.replace(/\s*\n+\s*/g, event.inputType === "insertLineBreak" ? "" : " ");
      const at = flat(field.value.slice(0, field.selectionStart)).length;
      field.value = flat(field.value);
      field.setSelectionRange(at, at);
      if (event.inputType === "insertLineBreak") { this.#enter(); return; }
    }
    this.#remember();
    const inserted = (event.inputType ?? "").startsWith("insert");
    if (inserted && event.data === " ") this.#expand(/\\(\S+) $/u);
    this.#wrote(this.before ?? "");
    const typed = field.value.slice(0, field.selectionStart);
    if (this.ghost && inserted && event.data && this.ghost.startsWith(event.data) && field.selectionStart === field.value.length) this.ghost = this.ghost.slice(event.data.length);
    else this.ghost = "";
    this.#changed();
    this.desk.coding(this, /\\(\S*)$/u.exec(typed)?.[1] ?? null);
    if (!event.isComposing && !/\\\S*$/u.test(typed)) this.#follow(inserted);
  }

  /** `\et` and a space, or the end of the line: a sign by its code. True if it was there at once. */
  #expand(code) {
    const { field } = this;
    const found = code.exec(field.value.slice(0, field.selectionStart));
    if (!found) return false;
    if (!this.desk.signs.there) { this.desk.signs.waiting.push(() => this.#expandLater(found[1])); return false; }
    const sign = this.desk.signs.byCode(found[1]);
    if (sign) field.setRangeText(sign, found.index, field.selectionStart, "end");
    return Boolean(sign);
  }

  /** A code that was typed before the signs were there; the line may be confirmed by now. */
  #expandLater(name) {
    const { field } = this;
    const sign = this.desk.signs.byCode(name);
    const code = `\\${name}`;
    const found = ` ${field.value} `.split(" ").findIndex((word) => word.endsWith(code)); // a code ends where a word does
    if (!sign || found < 0) return;
    const at = ` ${field.value} `.split(" ").slice(0, found + 1).join(" ").length - 1 - code.length;
    const end = Math.min(at + code.length + 1, field.value.length);
    const sure = this.saver.becomes === "confirmed";
    this.before = field.value;
    this.beforeAt = field.selectionStart;
    this.#remember();
    // Not "preserve": it would select the sign when the cursor stands right behind the code, and the next key would replace it.
    const moved = (place) => (place <= at ? place : Math.max(at, place - (end - at)) + sign.length);
    const [from, to] = [field.selectionStart, field.selectionEnd].map(moved);
    field.setRangeText(sign, at, end);
    field.setSelectionRange(from, to);
    this.#wrote(this.before);
    this.#changed();
    if (sure) this.saver.want({ text: field.value, state: "confirmed" }, { soon: true });
    else if (this.active) this.#follow();
  }

  /** Write a sign at the cursor, in place of a code that was begun. */
  insert(character) {
    const { field } = this;
    this.before = field.value;
    this.beforeAt = field.selectionStart;
    this.#remember();
    const begun = /\\\S*$/u.exec(field.value.slice(0, field.selectionStart));
    field.setRangeText(character, begun ? begun.index : field.selectionStart, field.selectionEnd, "end");
    this.#wrote(this.before);
    this.ghost = "";
    this.#changed();
    this.desk.coding(this, null);
    this.#follow();
    field.focus({ preventScroll: true });
  }

  /** Ask for the rest of the line after what stands before the cursor; one question at a time, the last one counts. */
  #follow(inserted = true) {
    if (!this.desk.settings.follow || ["bad", "not_text"].includes(this.line.state)) return;
    const { field } = this;
    if (field.selectionEnd < field.value.length && (!inserted || this.entering === "confirmed")) { this.#align(); return; }
    this.waiting = true;
    this.refused = false;
    if (!this.under) this.#ask();
  }

  async #ask() {
    const { field } = this;
    this.under = true;
    while (this.waiting) {
      this.waiting = false;
      const { turn } = this;
      const text = field.value, cursor = field.selectionStart;
      const at = this.#typedUpTo(cursor);
      const left = text.slice(0, at), right = text.slice(at);
      let found;
      try {
        const words = await this.#placed(at);
        found = await post(`/lines/${this.id}/complete`, { prefix: left, words });
        if (this.waiting || turn !== this.turn || field.value !== text || field.selectionStart !== cursor) continue;
        if (!found.text.startsWith(left) || !this.#placesOf(words, found.text.slice(left.length))) { this.#align(); continue; }
        this.#propose(found, left, right, cursor, words);
      } catch { /* the next key asks again */ }
    }
    this.under = false;
  }

  /** The end of what somebody wrote around the cursor, in UTF-16: nothing is put into the middle of a word being typed. */
  #typedUpTo(cursor) {
    const text = this.field.value;
    let at = cursor, point = pointAt(text, cursor);
    for (const character of points(text.slice(cursor))) {
      if (/\s/u.test(character) || this.origins[point] === READ) break;
      at += character.length;
      point++;
    }
    return at;
  }

  /** Words after an index that somebody wrote or said to be right, with their places: those the machine has to keep. */
  async #placed(from) {
    const text = this.field.value;
    const start = pointAt(text, from);
    const all = points(text);
    const runs = [];
    for (const word of words(text)) {
      if (word.start < start || this.origins.slice(word.start, word.end).every((who) => who === READ)) continue;
      const last = runs.at(-1);
      if (last && words(all.slice(last.end, word.start).join("")).length === 0) last.end = word.end;
      else runs.push({ ...word });
    }
    if (!runs.length) return [];
    const rest = all.slice(start).join("");
    if (!joined(this.characters).endsWith(rest)) {
      const aligned = await post(`/lines/${this.id}/complete`, { prefix: text });
      if (!joined(aligned.characters).endsWith(rest)) return [];
      this.characters = aligned.characters;
    }
    const shift = this.characters.length - all.length;
    return runs.map((run) => ({
      text: all.slice(run.start, run.end).join(""), start: this.characters[run.start + shift].start, end: this.characters[run.end - 1 + shift].end,
    }));
  }

  /** Where these words stand in a text, whole and in their order; null if one does not. */
  #placesOf(kept, text) {
    const places = [];
    let at = 0;
    for (const { text: word } of kept) {
      at = ` ${text} `.indexOf(` ${word} `, at);
      if (at < 0) return null;
      places.push(at);
      at += word.length + 1;
    }
    return places;
  }

  /** Show what the machine reads after `left`: grey at the end of the line, in place of what nobody touched in its middle. */
  #propose(found, left, right, cursor, kept) {
    const { field } = this;
    const rest = found.text.slice(left.length);
    this.characters = found.characters;
    this.alternatives = found.alternatives;
    if (!right) this.ghost = this.refused ? "" : rest;
    else if (rest !== right) {
      const offset = points(left).length;
      const origins = [...this.origins.slice(0, offset), ...points(rest).map(() => READ)];
      const [were, are] = [this.#placesOf(kept, right) ?? [], this.#placesOf(kept, rest)];
      kept.forEach(({ text }, n) => points(text).forEach((_, i) => {
        origins[offset + pointAt(rest, are[n]) + i] = this.origins[offset + pointAt(right, were[n] ?? 0) + i];
      }));
      field.value = left + rest;
      field.setSelectionRange(cursor, cursor);
      this.origins = origins;
      this.before = field.value;
      this.beforeAt = cursor;
      this.saver.want({ text: field.value });
      this.flash();
    }
    this.draw();
    this.#look();
  }

  /** The word at the cursor, or those that are selected, is right: it stays, whatever is read around it. */
  sure() {
    const { field } = this;
    const [from, to] = [field.selectionStart, field.selectionEnd].map((at) => pointAt(field.value, at));
    const chosen = words(field.value).filter(({ start, end }) => start <= to && from <= end && (from === to || (start < to && from < end)));
    if (!chosen.length) return false;
    this.origins = this.origins.map((who, at) => (chosen.some(({ start, end }) => start <= at && at < end) ? SURE : who));
    field.setSelectionRange(field.selectionEnd, field.selectionEnd);
    this.#changed();
    return true;
  }

  /** Where the characters stand, after an edit that asked for no proposal. */
  #align = calmed(150, async () => {
    const text = this.field.value;
    try {
      const found = await post(`/lines/${this.id}/complete`, { prefix: text });
      if (this.field.value === text && found.text.startsWith(text)) { this.characters = found.characters; this.draw(); this.#look(); }
    } catch { /* only the eye is blind for a moment */ }
  });

  /** Take the proposal: all of it, or its next word. */
  accept(whole) {
    if (!this.ghost) return false;
    const part = whole ? this.ghost : /^\s*\S+\s?/u.exec(this.ghost)?.[0] ?? this.ghost;
    this.before = this.field.value;
    this.beforeAt = this.field.selectionStart;
    this.#remember();
    this.field.value += part;
    this.#wrote(this.before, whole ? READ : TYPED);
    this.field.setSelectionRange(this.field.value.length, this.field.value.length);
    this.ghost = this.ghost.slice(part.length);
    this.#changed();
    return true;
  }

  #undo(from, to) {
    if (!from.length) return false;
    to.push([this.field.value, this.field.selectionStart, this.origins]);
    const [text, at, origins] = from.pop();
    this.field.value = text;
    this.field.setSelectionRange(at, at);
    this.origins = origins;
    this.ghost = "";
    this.#changed();
    if (at === text.length) this.#follow();
    return true;
  }

  /** A proposal may come while the key goes down: after typed text it is taken first, and seen, before it counts. */
  #enter() {
    if (this.field.value && this.accept(true)) return;
    if (this.#expand(/\\(\S+)$/u)) this.desk.coding(this, null);
    this.desk.confirm(this);
  }

  #key(event) {
    const { field } = this;
    if (event.isComposing) return;
    const bare = !event.ctrlKey && !event.metaKey && !event.altKey;
    const end = field.selectionStart === field.value.length;
    const forward = this.line.direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const control = (event.ctrlKey || event.metaKey) && !event.altKey;
    if (bare && event.key === "Enter" && this.desk.cutting) this.desk.cutAt(this, 0.5);
    else if (bare && (event.key === "Enter" || (event.key === "ArrowDown" && !event.shiftKey))) this.#enter();
    else if (bare && event.key === "ArrowUp" && !event.shiftKey) this.desk.step(this, -1);
    else if (bare && event.key === "Tab" && !event.shiftKey && this.ghost) this.accept(true);
    else if (bare && event.key === forward && !event.shiftKey && end && this.ghost) this.accept(false);
    else if (bare && event.key === "Escape" && (this.ghost || this.under)) { this.ghost = ""; this.refused = true; this.draw(); }
    else if (control && event.code === "KeyZ" && !event.shiftKey) { if (!this.#undo(this.past, this.undone)) this.desk.act("undo", this); }
    else if (control && (event.code === "KeyY" || (event.code === "KeyZ" && event.shiftKey))) this.#undo(this.undone, this.past);
    else { if (bare) { this.before = field.value; this.beforeAt = field.selectionStart; } return; }
    event.preventDefault();
    event.stopPropagation();
  }

  // --- what is uncertain ---

  /** The next uncertain word from a code point on: [start, end] in UTF-16, or null. A line without a draft is uncertain as a whole. */
  uncertain(from = 0) {
    const text = this.field.value;
    if (!text && this.ghost) return [0, 0];
    const sure = this.#confidences();
    for (const { start, end } of words(text)) {
      if (start < from) continue;
      const worst = Math.min(...sure.slice(start, end).map((c) => c ?? 1));
      if (worst < DOUBT) return [indexOf(text, start), indexOf(text, end)];
    }
    return null;
  }

  // --- two at one line ---

  #conflict(mine, theirs) {
    const settle = (keep) => {
      this.trouble.replaceChildren();
      this.saver.settle(theirs, keep ? { text: this.field.value, ...(mine.state ? { state: mine.state } : {}) } : null);
      this.field.focus();
    };
    this.trouble.replaceChildren(
      h("p", {}, "This line was changed elsewhere while you typed. Which one shall stay?"),
      h("dl", {}, h("dt", {}, "Yours"), h("dd", { dir: theirs.direction }, mine.text || "(empty)"),
        h("dt", {}, "Theirs"), h("dd", { dir: theirs.direction }, marked(mine.text, theirs.text))),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "button main", onclick: () => settle(true) }, "Keep mine"),
        h("button", { type: "button", class: "button", onclick: () => settle(false) }, "Take theirs")));
    if (this.element.contains(document.activeElement)) this.trouble.scrollIntoView({ block: "nearest" });
  }

  /** Play the recording, or stop where it is. */
  play() {
    if (!this.sound) return;
    if (this.sound.paused) this.sound.play().catch(complain); else this.sound.pause();
  }

  async history() { await this.saver.send(); return get(`/lines/${this.id}/history`); }

  leave() { this.saver.leave(); }
}
