// Work that takes its time: what runs, how far it is, a button to stop it.

import { get, hear, remove } from "./api.js";
import { button, complain, h, toast } from "./dom.js";

const KINDS = { read: "Reading", lines: "Reading lines", again: "Reading again with what is known", adapt: "Learning from the confirmed lines" };
const QUIET = new Set(["lines", "again"]); // shown only if they last
const LAST = 900; // milliseconds
const ended = (job) => ["done", "failed", "cancelled"].includes(job.state);

/** The list of running jobs, in its place at the foot of the page. */
export function showJobs(element) {
  const shown = new Map();
  const names = new Map();
  const take = async (job) => {
    if (ended(job)) {
      clearTimeout(shown.get(job.id)?.timer);
      shown.get(job.id)?.row?.remove();
      if (shown.delete(job.id) && job.state === "failed") toast(`${KINDS[job.kind] ?? job.kind}: ${job.message}`, { bad: true });
      for (const problem of (job.state === "done" && job.result?.problems) || []) toast(problem, { bad: true });
      return;
    }
    if (!shown.has(job.id)) {
      const entry = { row: null, timer: null, job };
      shown.set(job.id, entry);
      entry.timer = setTimeout(async () => {
        if (!shown.has(job.id)) return;
        if (job.document && !names.has(job.document)) {
          try { names.set(job.document, (await get(`/documents/${job.document}`)).name); } catch { /* deleted */ }
        }
        if (!shown.has(job.id)) return;
        entry.bar = h("progress", { max: 1, "aria-label": KINDS[job.kind] ?? job.kind });
        entry.what = h("span", { class: "what" });
        const stop = button("close", `Stop: ${KINDS[job.kind] ?? job.kind}`, () => remove(`/jobs/${job.id}`).catch(complain));
        entry.row = h("div", { class: "job" }, entry.what, entry.bar, stop);
        element.append(entry.row);
        draw(entry);
      }, QUIET.has(job.kind) ? LAST : 0);
    }
    const entry = shown.get(job.id);
    entry.job = job;
    if (entry.row) draw(entry);
  };
  const draw = ({ job, bar, what }) => {
    const place = job.total ? ` ${Math.min(job.done + (job.kind === "read" ? 1 : 0), job.total)} of ${job.total}` : "";
    const name = names.get(job.document);
    what.textContent = `${KINDS[job.kind] ?? job.kind}${name ? `: ${name}` : ""}${job.state === "queued" ? ", waiting" : place}`;
    what.title = job.message;
    if (job.total) bar.value = job.done / job.total; else bar.removeAttribute("value");
  };
  const load = () => get("/jobs").then((jobs) => {
    const now = new Map(jobs.map((job) => [job.id, job]));
    for (const [id, { row, timer }] of shown) if (!now.has(id)) { clearTimeout(timer); row?.remove(); shown.delete(id); }
    for (const job of jobs) if (!ended(job) || shown.has(job.id)) take(job);
  }).catch(() => {});
  hear({ job: take, lost: load });
  load();
}
