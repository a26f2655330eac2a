// The frequency explorer: texts by century, how their characters differ, which ones drive the shift. Reports of runs.

import { get, upload } from "./api.js";
import { accepts, button, complain, count, h, icon, percent, s } from "./dom.js";
import { header } from "./start.js";
import { visible } from "./text.js";

const FEW = 48, ACROSS = 24; // characters in the heat map, and how many side by side

/** The century in a name: "13", "s. xiv", "1250"; else the folder, else the name. */
export function domainOf(path) {
  const name = path.split("/").at(-1).replace(/\.[^.]+$/, "");
  const folder = path.split("/").at(-2);
  if (folder) return folder;
  const year = /(?<!\d)(\d{3,4})(?!\d)/.exec(name)?.[1];
  if (year) return String(Math.floor(Number(year) / 100) + 1);
  return /(?<!\d)(\d{1,2})(?!\d)/.exec(name)?.[1] ?? name;
}

export class Frequencies {
  constructor(main, top, go) { Object.assign(this, { main, top, go }); this.texts = []; }

  async open() {
    document.title = "Frequencies · fada";
    this.main.className = "explorer";
    header(this.top, "frequencies");
    this.list = h("ul", { class: "texts" });
    this.result = h("div", { class: "result", "aria-live": "polite" });
    const files = h("input", { type: "file", multiple: true, accept: ".txt,text/plain", class: "unseen", tabindex: -1, "aria-label": "Texts", onchange: () => { this.#add([...files.files].map((file) => ({ file, path: file.name }))); files.value = ""; } });
    const zone = h("section", { class: "zone" },
      h("h1", {}, "How writing changes"),
      h("p", { class: "lead" }, "Drop texts of several centuries, languages or hands: plain text, a file or a folder for each. The name says which century it is; you can change it."),
      h("div", { class: "drop" }, icon("page"), h("div", { class: "buttons" }, h("button", { type: "button", class: "button main", onclick: () => files.click() }, "Choose texts"), files)),
      this.list);
    this.main.replaceChildren(zone, this.result);
    accepts(zone, (found) => this.#add(found));
    this.#draw();
  }

  close() {}

  #add(files) {
    this.texts.push(...files.map(({ file, path }) => ({ file, domain: domainOf(path) })));
    this.#draw();
  }

  #draw() {
    this.list.replaceChildren(...this.texts.map((text, at) => h("li", {},
      h("span", { class: "grow" }, text.file.name),
      h("input", { value: text.domain, "aria-label": `Century of ${text.file.name}`, maxlength: 100, onchange: (event) => { text.domain = event.target.value.trim() || text.domain; this.#ask(); } }),
      button("trash", `Leave ${text.file.name} out`, () => { this.texts.splice(at, 1); this.#draw(); }))));
    this.#ask();
  }

  async #ask() {
    const mine = this.turn = (this.turn ?? 0) + 1; // an answer that comes after a later question is not shown
    if (new Set(this.texts.map((text) => text.domain)).size < 2) {
      this.result.replaceChildren(this.texts.length ? h("p", { class: "note" }, "One more is needed to compare.") : "");
      return;
    }
    const form = new FormData();
    for (const { file, domain } of this.texts) form.append("files", file, `${domain.replace(/[\\/]/g, "_")}.txt`); // a file is named after its domain
    if (!this.result.childElementCount) this.result.replaceChildren(h("p", { class: "note" }, "Counting…"));
    try {
      const found = await upload("/frequencies", form);
      if (mine === this.turn) this.#show(found);
    } catch (error) { if (mine === this.turn) this.result.replaceChildren(); complain(error); }
  }

  #show(found) {
    const { domains, characters, table, correlations, shift } = found;
    this.result.replaceChildren(
      h("section", {}, h("h2", {}, "Characters by domain"), h("p", { class: "note" }, "Darker is more frequent than in the other domains, on a scale of its own for each character."), this.#heat(domains, characters, table)),
      h("section", {}, h("h2", {}, "How alike they are"), h("p", { class: "note" }, "Correlation of the frequencies."), this.#matrix(domains, correlations)),
      h("section", {}, h("h2", {}, "What drives the shift"), h("p", { class: "note" }, shift.length ? `Characters whose share changes most from ${shift[0].from} to ${shift[0].to}, the two that differ most; with their part of the whole shift.` : ""), this.#drivers(shift)));
  }

  #heat(domains, characters, table) {
    const all = characters.slice(0, FEW).map((character, j) => ({ character, j }));
    const parts = Array.from({ length: Math.ceil(all.length / ACROSS) }, (_, part) => all.slice(part * ACROSS, (part + 1) * ACROSS));
    return h("div", { class: "wide-table", tabindex: 0, role: "region", "aria-label": "Characters by domain" }, parts.map((shown) => h("table", { class: "heat" },
      h("thead", {}, h("tr", {}, h("td", {}), shown.map(({ character: c }) => h("th", { scope: "col" }, c === " " ? "␣" : visible(c))))),
      h("tbody", {}, domains.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), shown.map(({ j }) => {
        const column = table.map((row) => row[j]);
        const most = Math.max(...column), least = Math.min(...column);
        const level = most > least ? Math.round((9 * (table[i][j] - least)) / (most - least)) : 4;
        return h("td", { class: `heat-${level}`, title: `${name}: ${(1000 * table[i][j]).toFixed(2)} ‰` }, (1000 * table[i][j]).toFixed(table[i][j] >= 0.01 ? 0 : 1));
      })))))));
  }

  #matrix(domains, correlations) {
    return h("div", { class: "wide-table", tabindex: 0, role: "region", "aria-label": "Correlations" }, h("table", { class: "heat" },
      h("thead", {}, h("tr", {}, h("td", {}), domains.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, domains.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), domains.map((_, j) =>
        h("td", { class: `heat-${Math.round(9 * Math.min(Math.max((correlations[i][j] - 0.8) / 0.2, 0), 1))}` }, correlations[i][j].toFixed(3))))))));
  }

  #drivers(shift) {
    const rows = shift.slice(0, 20).map((one) => ({ character: one.symbol ?? one.character, ...one }));
    const most = Math.max(1e-9, ...rows.map((one) => Math.abs(one.change)));
    return h("ul", { class: "drivers" }, rows.map((one) => {
      const width = (46 * Math.abs(one.change)) / most;
      return h("li", {}, h("span", { class: "glyph", title: one.name ?? "" }, one.character === " " ? "␣" : visible(one.character)),
        s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, s("line", { x1: 50, x2: 50, y1: 0, y2: 10, class: "axis" }),
          s("rect", { x: one.change < 0 ? 50 - width : 50, y: 2, width, height: 6, class: one.change < 0 ? "less" : "more" })),
        h("span", { class: "note" }, `${one.change > 0 ? "+" : "−"}${(1000 * Math.abs(one.change)).toFixed(1)} ‰ · ${percent(one.share ?? 0)}`));
    }));
  }
}

export class Reports {
  constructor(main, top, go) { Object.assign(this, { main, top, go }); }

  async open() {
    document.title = "Reports · fada";
    this.main.className = "explorer";
    header(this.top, "reports");
    const runs = (await get("/runs")).filter((run) => run.report);
    if (this.closed) return;
    this.main.replaceChildren(h("section", { class: "zone" }, h("h1", {}, "Reports"),
      h("p", { class: "lead" }, runs.length ? `${count(runs.length, "run")} in the project folder ${runs.length === 1 ? "has" : "have"} a report.` : "No run in the project folder has a report. fada report writes one for a run."),
      h("ul", { class: "documents" }, runs.map((run) => h("li", {}, h("a", { class: "card", href: `/api/runs/${run.id}/report`, target: "_blank", rel: "noopener" }, h("b", { class: "title" }, run.name), h("span", { class: "note" }, "opens in a new tab")))))));
  }

  close() { this.closed = true; }
}
