// What is typed goes to the server as it is typed; until it is acknowledged the browser keeps it, over a reload too.

import { patch } from "./api.js";

const PAUSE = 350; // milliseconds without a key before a text is sent
const unsent = new Set();
const watchers = new Set();

/** The state of all lines: "saved", "saving", "waiting" (no answer), "conflict". */
export function savingState() {
  const states = [...unsent].map((saver) => saver.state);
  return ["conflict", "waiting", "saving"].find((state) => states.includes(state)) ?? "saved";
}
export const watchSaving = (watcher) => { watchers.add(watcher); return () => watchers.delete(watcher); };
const told = () => { for (const watcher of watchers) watcher(savingState()); };

/** Send everything now; resolves when nothing is under way. */
export const sendAll = () => Promise.all([...unsent].map((saver) => saver.send()));

const memory = {
  write(key, value) { try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* full, or private */ } },
  read(key) { try { return JSON.parse(localStorage.getItem(key)); } catch { return null; } },
  clear(key) { try { localStorage.removeItem(key); } catch { /* private */ } },
};

/** Saves one line.
 *
 * line: as the server told it; replaced by each answer.
 * key: names the line in this browser, also among the projects that were served at this address.
 * on: `{saved(line), conflict(mine, theirs), state(state), gone(text)}`.
 */
export class Saver {
  constructor(line, key, on) {
    Object.assign(this, { line, key: `fada.unsaved.${key}`, on, wanted: null, going: null, under: null, state: "saved", heard: null });
    this.sent = []; // what went out from this version without an answer: the server may have it
    this.delay = 0;
    this.timer = null;
  }

  /** What an earlier visit could not send, or of which it did not hear that it came: it goes out now. Null if there is nothing. */
  kept() {
    const found = memory.read(this.key);
    if (!found || (found.text === this.line.text && (found.state ?? this.line.state) === this.line.state)) {
      memory.clear(this.key);
      return null;
    }
    const { text, state, version, sent = [] } = found;
    this.line = { ...this.line, version };
    this.sent = sent;
    this.want({ ...(text === undefined ? {} : { text }), ...(state ? { state } : {}) }, { soon: true });
    return found;
  }

  get dirty() { return this.under !== null || this.wanted !== null; }

  /** The line's state when all that is wished for is there. */
  get becomes() {
    const change = this.wanted ?? this.going;
    return change ? change.state ?? (change.text === undefined ? this.line.state : "typed") : this.line.state;
  }

  #set(state) {
    this.state = state;
    if (state === "saved") unsent.delete(this); else unsent.add(this);
    this.on.state?.(state);
    told();
  }

  /** Let the browser remember what no answer has acknowledged. */
  #keep() {
    const open = { ...this.going, ...this.wanted };
    if (this.wanted?.text !== undefined && this.wanted.state === undefined) delete open.state;
    memory.write(this.key, { ...open, version: this.line.version, sent: this.sent });
  }

  /** Wish for a text, a state or both. */
  want(change, { soon = false } = {}) {
    this.wanted = { ...this.wanted, ...change };
    if (change.text !== undefined && change.state === undefined) delete this.wanted.state;
    this.#keep();
    if (this.state !== "conflict") this.#set(this.state === "waiting" ? "waiting" : "saving");
    this.#later(soon ? 0 : PAUSE);
  }

  #later(delay) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send(), delay);
  }

  /** Send what is wished for; resolves when nothing is under way. */
  async send() {
    while (this.under) await this.under;
    clearTimeout(this.timer);
    if (this.wanted === null || this.state === "conflict") return;
    await this.#alone(this.#go());
  }

  /** Do something to the line on the server when all that was typed is there; what is typed meanwhile waits for it. */
  async after(run) {
    await this.send();
    return this.#alone(run());
  }

  async #alone(running) {
    this.under = running.catch(() => {});
    try { return await running; } finally { this.under = null; }
  }

  async #go() {
    for (;;) {
      const going = this.wanted;
      this.going = going;
      this.wanted = null;
      this.sent.push(going);
      this.#keep();
      try {
        this.#answered(await patch(`/lines/${this.line.id}`, { version: this.line.version, ...going }, { keepalive: true }));
        return;
      } catch (problem) {
        if (problem.status !== 409) { this.#failed(problem, going); return; }
        const theirs = problem.body.line;
        const is = ({ text, state }) => (text ?? theirs.text) === theirs.text && (state ?? theirs.state) === theirs.state;
        if (is(going)) { this.#answered(theirs); return; } // an answer of ours was lost on its way
        const ours = theirs.version === this.line.version + 1 && this.sent.some(is);
        this.wanted = { ...going, ...this.wanted };
        this.sent = [];
        if (ours || theirs.state === "draft") { this.line = theirs; continue; } // or only the machine has read it again
        this.going = null;
        this.wanted = { text: this.line.text, ...this.wanted };
        this.#keep();
        this.#set("conflict");
        this.on.conflict(this.wanted, theirs);
        return;
      }
    }
  }

  #answered(line) {
    this.delay = 0;
    this.sent = [];
    this.going = null;
    this.line = this.heard && this.heard.version > line.version ? this.heard : line;
    this.heard = null;
    if (this.wanted === null) {
      memory.clear(this.key);
      this.#set("saved");
    } else {
      this.#keep();
      this.#set("saving");
    }
    this.on.saved(this.line);
  }

  #failed(problem, going) {
    this.going = null;
    if (problem.status === 404) {
      memory.clear(this.key);
      this.#set("saved");
      this.on.gone({ ...going, ...this.wanted }.text ?? "");
      this.wanted = null;
      return;
    }
    this.wanted = { ...going, ...this.wanted };
    this.#keep();
    this.#set("waiting");
    this.delay = Math.min(10_000, this.delay ? 2 * this.delay : 500);
    this.#later(this.delay);
  }

  /** The line as somebody else, or the machine, left it. True if it can be shown. */
  hear(line) {
    if (this.state === "conflict") return false;
    if (this.dirty) {
      if (!this.heard || line.version > this.heard.version) this.heard = line;
      return false;
    }
    if (line.version < this.line.version) return false;
    this.line = line;
    return true;
  }

  /** After a conflict: keep what was typed here, or take what is there. */
  settle(theirs, mine) {
    this.line = theirs;
    this.sent = [];
    this.#set("saved");
    if (mine) this.want(mine, { soon: true });
    else { this.wanted = null; memory.clear(this.key); this.on.saved(theirs); }
  }

  /** The line after something was done to it; what was typed meanwhile stays, and is sent. */
  took(line) { if (this.wanted === null) this.settle(line, null); else this.line = line; }

  /** The line is no longer shown. */
  leave() { this.send(); }
}

addEventListener("pagehide", () => { for (const saver of unsent) saver.send(); });
addEventListener("beforeunload", (event) => { if (["waiting", "conflict"].includes(savingState())) event.preventDefault(); });
