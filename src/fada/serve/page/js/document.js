// What is done with a whole document: export, learning, settings.

import { ask, client, get, post, put } from "./api.js";
import { complain, count, dialog, h, modelName, toast } from "./dom.js";

const FORMATS = [
  ["alto", "ALTO", "a file for each page with its picture: eScriptorium, kraken, Transkribus"],
  ["page", "PAGE", "the same as PAGE XML"],
  ["text", "Plain text", "one line below the other"],
  ["tsv", "Table (TSV)", "a row for each line: page, text, state"],
  ["pairs", "Pairs", "a picture and a text for each line: kraken, Calamari, Tesseract"],
  ["parquet", "Parquet", "pictures and texts in one file: fada, Hugging Face datasets"],
];

/** A dialogue that downloads the document. */
export function openExport({ id, name }) {
  const only = h("select", { id: "export-only" }, h("option", { value: "confirmed" }, "confirmed lines only"), h("option", { value: "all" }, "all lines, drafts too"));
  const load = async (format) => {
    const path = `/documents/${id}/export?format=${format}&only=${only.value}`;
    try {
      const response = await fetch(`/api${path}`);
      if (!response.ok) throw new Error((await response.json()).error);
      const given = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("content-disposition") ?? "")?.[1];
      const link = h("a", { href: URL.createObjectURL(await response.blob()), download: given ? decodeURIComponent(given) : `${name}.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      shown.close();
    } catch (error) { complain(error); }
  };
  const shown = dialog("Export", h("div", { class: "export" },
    h("p", {}, h("label", { for: "export-only" }, "Which lines: "), only),
    h("ul", { class: "choices" }, FORMATS.map(([format, title, note]) => h("li", {},
      h("button", { type: "button", class: "choice", onclick: () => load(format) }, h("b", {}, title), h("span", {}, note)))))));
  shown.querySelector(".choice").focus();
}

const FEWEST = 5; // confirmed lines to learn from

/** A dialogue that starts to adapt the model. */
export async function openLearn({ id, name }, page) {
  const { confirmed, model } = await get(`/documents/${id}`);
  const told = confirmed < FEWEST ? `At least ${FEWEST} are needed: Enter confirms the line you are at.` : confirmed < 20 ? "Every line counts: eight are a beginning, some twenty-four help a good deal more." : null;
  dialog("Learn from the confirmed lines", h("div", {},
    h("p", {}, `${count(confirmed, "line")} of “${name}” ${confirmed === 1 ? "is" : "are"} confirmed. The model “${modelName(model)}” learns from them, some are held back to measure what it learnt, and unless it reads worse, the document is read again with it. What you typed or confirmed stays as it is.`),
    told && h("p", { class: "note" }, told),
    h("p", { class: "note" }, "This takes some minutes. You can go on reading meanwhile, and stop it at any time.")), {
    buttons: [
      { text: "Not now", onclick: (shown) => shown.close() },
      { text: "Learn", kind: "main", disabled: confirmed < FEWEST, onclick: async (shown) => {
        shown.close();
        try { await post(`/documents/${id}/adapt${page ? `?page=${page}` : ""}`); toast("Learning has begun; it is shown at the foot of the page."); } catch (error) { complain(error); }
      } },
    ],
  });
}

/** Name, direction and model of the document; settings of the desk. */
export async function openSettings(settings, document_, set, changed) {
  const models = await get("/models");
  const name = h("input", { id: "set-name", value: document_.name, maxlength: 200 });
  const direction = h("select", { id: "set-direction" }, h("option", { value: "ltr", selected: document_.direction === "ltr" }, "left to right"), h("option", { value: "rtl", selected: document_.direction === "rtl" }, "right to left"));
  const names = [...new Set([document_.model, ...models.map((one) => one.name)])];
  const model = h("select", { id: "set-model" }, names.map((one) => h("option", { value: one, selected: one === document_.model }, modelName(one))));
  const beam = h("input", { id: "set-beam", type: "number", min: 1, max: 200, value: settings.beam });
  const who = h("input", { id: "set-who", value: client.name, maxlength: 60 });
  const row = (input, label, note) => h("p", { class: "entry" }, h("label", { for: input.id }, label), input, note && h("small", {}, note));
  dialog("Settings", h("form", { class: "entries", onsubmit: (event) => event.preventDefault() },
    h("h3", {}, "This document"), row(name, "Name"), row(direction, "Writing"), row(model, "Model", "Another model reads the document again; what was typed stays."),
    h("h3", {}, "The desk"), row(beam, "Readings in the search", "More are slower and sometimes better."), row(who, "Your name", "For the history of lines, in this browser.")), {
    buttons: [
      { text: "Cancel", onclick: (shown) => shown.close() },
      { text: "Save", kind: "main", onclick: async (shown) => {
        client.name = who.value.trim();
        const change = {};
        if (name.value.trim() && name.value.trim() !== document_.name) change.name = name.value.trim();
        if (direction.value !== document_.direction) change.direction = direction.value;
        if (model.value !== document_.model) change.model = model.value;
        try {
          if (Object.keys(change).length) await ask("PATCH", `/documents/${document_.id}`, change);
          await set({ beam: Math.min(200, Math.max(1, Number(beam.value) || 30)) });
          shown.close();
          changed();
        } catch (error) { complain(error); }
      } },
    ],
  });
}

/** The default model of the desk. */
export const setModel = async (model) => put("/settings", { ...(await get("/settings")), model });
