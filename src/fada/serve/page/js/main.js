// Which screen is shown: `#/` documents, `#/d/3/p/7` a page at the desk, `#/frequencies`, `#/reports`.

import { Problem } from "./api.js";
import { Desk } from "./desk.js";
import { complain, h } from "./dom.js";
import { Frequencies, Reports } from "./frequencies.js";
import { showJobs } from "./jobs.js";
import { help } from "./keys.js";
import { header, Start } from "./start.js";

const main = document.getElementById("main"), top_ = document.getElementById("top");
let screen = null;
let turn = 0;
const go = (hash) => { location.hash = hash; };

async function route() {
  const mine = ++turn;
  const [where, document_, , page] = location.hash.replace(/^#\/?/, "").split("/");
  if (where === "main") return; // the link that skips to the content
  if (where === "d" && screen instanceof Desk && screen.document?.id === Number(document_)) {
    if (page) await screen.turnTo(Number(page)).catch(complain);
    return;
  }
  screen?.close();
  const Screen = { d: Desk, frequencies: Frequencies, reports: Reports }[where] ?? Start;
  screen = new Screen(main, top_, go);
  try { await screen.open(Number(document_), Number(page)); } catch (error) {
    if (mine !== turn) return;
    header(top_, "");
    main.className = "start";
    main.replaceChildren(h("section", { class: "zone" }, h("h1", {}, error instanceof Problem && error.status === 404 ? "There is nothing here" : "This did not work"),
      h("p", { class: "lead" }, error.message), h("p", {}, h("a", { href: "#/" }, "All documents"), " · ", h("button", { type: "button", class: "button", onclick: route }, "Try again"))));
    if (!(error instanceof Problem)) console.error(error);
  }
}

addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if (!(screen instanceof Desk) && (event.key === "F1" || (event.key === "?" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)))) { event.preventDefault(); help(); }
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
showJobs(document.getElementById("jobs"));
route();
