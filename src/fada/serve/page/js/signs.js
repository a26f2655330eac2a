// The palette: characters that the model can write and the keyboard cannot.

import { button, h } from "./dom.js";
import { visible } from "./text.js";

const KEYS = /^[\x20-\x7e]$/;
const USUAL = 48; // signs that are shown before one searches

export class Signs {
  /** on: `{insert(character), closed()}`. */
  constructor(on) {
    this.on = on;
    this.signs = [];
    this.there = false;
    this.waiting = []; // what was typed as a code before the signs were there
    this.search = h("input", {
      type: "search", placeholder: "name or code", "aria-label": "Search signs by name or code", spellcheck: "false",
      oninput: () => this.draw(), onkeydown: (event) => this.#key(event),
    });
    this.grid = h("div", { class: "grid", role: "group", "aria-label": "Signs" });
    this.note = h("p", { class: "note" });
    this.element = h("section", { class: "signs", "aria-label": "Signs", hidden: true },
      h("header", {}, h("h2", {}, "Signs"), this.search, button("close", "Close the signs", () => this.toggle(false), { key: "Esc" })),
      this.grid, this.note);
  }

  set(signs) {
    this.signs = signs;
    this.codes = new Map(signs.map((sign) => [sign.code.toLowerCase(), sign.character]));
    this.there = true;
    this.draw();
    this.waiting.splice(0).forEach((run) => run());
  }

  /** The sign of a code; else of a character, else the only one whose name has a word that begins so. */
  byCode(code) {
    const exact = this.signs.find((sign) => sign.code === code)?.character ?? this.codes?.get(code.toLowerCase());
    if (exact) return exact;
    const found = this.#named(code).filter((sign) => !KEYS.test(sign.character));
    return found.length === 1 ? found[0].character : null;
  }

  #named(text) {
    const asked = text.toLowerCase().split(/\s+/u).filter(Boolean);
    return this.signs.filter((sign) => asked.every((word) =>
      sign.name.toLowerCase().split(/[\s-]+/u).some((part) => part.startsWith(word)) || sign.code.toLowerCase().startsWith(word) || sign.character === word));
  }

  toggle(open = this.element.hidden) {
    this.element.hidden = !open;
    if (open) { this.search.value = ""; this.draw(); this.search.focus(); } else this.on.closed();
  }

  /** While a code is typed in a line: show what it may become. */
  coding(code) {
    if (code === null) { if (this.helping) { this.helping = false; this.element.hidden = true; } this.asked = null; return; }
    if (this.element.hidden) { this.helping = true; this.element.hidden = false; }
    this.asked = code;
    this.draw();
  }

  draw() {
    if (this.element.hidden) return;
    const asked = this.asked ?? this.search.value.trim();
    const all = asked ? this.#named(asked) : this.signs.filter((sign) => !KEYS.test(sign.character));
    const exact = asked ? all.filter((sign) => sign.code.toLowerCase() === asked.toLowerCase()) : [];
    const shown = [...exact, ...all.filter((sign) => !exact.includes(sign))].slice(0, USUAL);
    this.found = shown;
    this.grid.replaceChildren(...shown.map((sign) => h("button", {
      type: "button", class: "sign", title: `${sign.name}\n\\${sign.code}`, "aria-label": `${sign.name.toLowerCase()}, code ${sign.code}`,
      onpointerdown: (event) => event.preventDefault(), // the cursor stays in its line
      onclick: () => this.on.insert(sign.character),
    }, h("span", { class: "glyph", lang: "la" }, visible(sign.character)), h("code", {}, sign.code))));
    this.note.textContent = shown.length
      ? "Click one, or type \\ and its code and a space in the line."
      : `No sign is called “${asked}”.`;
  }

  #key(event) {
    if (event.key === "Enter" && this.found?.length) { event.preventDefault(); this.on.insert(this.found[0].character); this.search.select(); }
    else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); this.toggle(false); }
    else if (event.key === "ArrowDown") { event.preventDefault(); this.grid.querySelector("button")?.focus(); }
  }
}
