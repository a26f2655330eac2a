// The first screen: bring pages, go on with documents.

import { get, hear, upload } from "./api.js";
import { accepts, button, complain, count, h, icon, modelName, percent, progress, toast, when } from "./dom.js";
import { deleteDocument } from "./desk.js";

export class Start {
  constructor(main, top, go) { Object.assign(this, { main, top, go }); }

  async open() {
    document.title = "fada";
    this.main.className = "start";
    header(this.top, "documents");
    const [models, settings] = await Promise.all([get("/models"), get("/settings")]);
    if (this.closed) return;
    this.models = models;
    this.list = h("ul", { class: "documents" });
    this.empty = h("p", { class: "lead" }, "None yet. What you drop above is kept here, with every letter you type.");
    const table = h("div", { class: "table" }, this.#zone(settings), h("section", { class: "shelf" }, h("h2", {}, "Documents"), this.list, this.empty));
    accepts(table, (files) => this.#send(files));
    this.main.replaceChildren(table);
    this.leave = hear({ job: (job) => (["done", "failed", "cancelled"].includes(job.state) || job.state === "queued") && this.load(), page: () => this.load(), lost: () => this.load() });
    await this.load();
  }

  close() { this.closed = true; this.leave?.(); }

  #zone(settings) {
    this.model = h("select", { id: "model" }, this.models.map((model) => h("option", { value: model.name, selected: model.name === settings.model },
      model.languages.length ? `${modelName(model.name)}: ${model.languages.join(", ")}` : modelName(model.name))));
    const told = h("small", { id: "model-told" });
    const tell = () => { told.textContent = this.models.find((model) => model.name === this.model.value)?.description ?? ""; };
    this.model.addEventListener("change", tell);
    tell();
    this.direction = h("select", { id: "direction" }, h("option", { value: "ltr" }, "left to right"), h("option", { value: "rtl" }, "right to left"));
    const pick = (folder) => {
      const input = h("input", { type: "file", multiple: true, class: "unseen", tabindex: -1, "aria-label": folder ? "A folder" : "Files" });
      if (folder) input.webkitdirectory = true;
      input.addEventListener("change", () => { this.#send([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }))); input.value = ""; });
      return input;
    };
    const files = pick(false), folder = pick(true);
    this.sent = h("div", { class: "sent", role: "status" });
    return h("section", { class: "zone" },
      h("h1", {}, "Read a manuscript with the machine"),
      h("p", { class: "lead" }, "Drop photographs of pages anywhere on this page. You read beside the machine, tell it what you know of the text, and it reads again."),
      h("div", { class: "drop" }, icon("page"),
        h("p", {}, "Page images, with or without ALTO or PAGE; line images; PDF; sound; a folder or ZIP of them"),
        h("div", { class: "buttons" },
          h("button", { type: "button", class: "button main", onclick: () => files.click() }, "Choose files"),
          h("button", { type: "button", class: "button", onclick: () => folder.click() }, "Choose a folder"), files, folder),
        this.sent),
      h("div", { class: "options" },
        h("p", { class: "entry" }, h("label", { for: "model" }, "Model"), this.model, told),
        h("p", { class: "entry" }, h("label", { for: "direction" }, "Writing"), this.direction)),
      h("p", { class: "note" }, "Everything stays on this machine."));
  }

  async #send(files) {
    if (!files.length) return;
    const form = new FormData();
    for (const { file, path } of files) form.append("files", file, path);
    form.append("model", this.model.value);
    form.append("direction", this.direction.value);
    const folder = files[0].path.includes("/") ? files[0].path.split("/")[0] : "";
    form.append("name", (folder || files[0].file.name.replace(/\.[^.]+$/, "") || "document").slice(0, 200));
    const bar = progress(0, 1, "Sending");
    this.sent.replaceChildren(`Sending ${count(files.length, "file")}…`, bar);
    try {
      const { document: made } = await upload("/documents", form, (part) => { bar.value = part; });
      this.sent.replaceChildren();
      if (this.closed) toast(`“${made.name}” has come; it is among the documents.`); else this.go(`#/d/${made.id}`);
    } catch (error) { this.sent.replaceChildren(); complain(error); }
  }

  async load() {
    if (this.loading) { this.again = true; return; }
    this.loading = true;
    do {
      this.again = false;
      try { this.#show(await get("/documents")); } catch (error) { if (!error.passing) complain(error); }
    } while (this.again);
    this.loading = false;
  }

  #show(documents) {
    this.empty.hidden = documents.length > 0;
    this.list.replaceChildren(...documents.map((one) => h("li", {},
      h("a", { class: "card", href: `#/d/${one.id}` },
        h("b", { class: "title" }, one.name),
        h("span", { class: "note" }, `${count(one.pages, "page")} · ${count(one.lines, "line")} · ${modelName(one.model)}`),
        progress(one.confirmed, one.lines, "Confirmed lines"),
        h("span", { class: "note" }, `${one.confirmed} confirmed${one.lines ? ` (${percent(one.confirmed / one.lines)})` : ""} · ${when(one.created, { dateStyle: "medium" })}`)),
      button("trash", `Delete ${one.name}`, async () => {
        try { if (await deleteDocument(one)) { await this.load(); toast(`“${one.name}” is deleted.`); } } catch (error) { complain(error); }
      }))));
  }
}

/** The bar of every screen but the desk. */
export function header(top, here) {
  const link = (name, hash, text) => h("a", { href: hash, "aria-current": here === name ? "page" : null }, text);
  top.className = "bar";
  top.replaceChildren(
    h("a", { class: "brand", href: "#/", "aria-label": "fada" }, h("span", {}, "fada")),
    h("nav", { "aria-label": "Main" }, link("documents", "#/", "Documents"), link("frequencies", "#/frequencies", "Frequencies"), link("reports", "#/reports", "Reports"), h("a", { href: "/docs" }, "Interface")));
}
