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
    Object.assign(this, { line, key: `fada.unsaved.${key}`, on, wanted: null, sending: false, state: "saved", heard: null });
    this.delay = 0;
    this.timer = null;
  }

  /** What an earlier visit could not send. */
  kept() {
    const found = memory.read(this.key);
    if (!found || (found.text === this.line.text && (found.state ?? this.line.state) === this.line.state)) {
      memory.clear(this.key);
      return null;
    }
    return found;
  }

  get dirty() { return this.sending || this.wanted !== null; }

  #set(state) {
    this.state = state;
    if (state === "saved") unsent.delete(this); else unsent.add(this);
    this.on.state?.(state);
    told();
  }

  /** Wish for a text, a state or both; `at` the version that it was typed on, if not the present one. */
  want(change, { soon = false } = {}) {
    this.wanted = { ...this.wanted, ...change };
    if (change.text !== undefined && change.state === undefined) delete this.wanted.state;
    memory.write(this.key, { ...this.wanted, version: this.line.version });
    if (this.state !== "conflict") this.#set(this.state === "waiting" ? "waiting" : "saving");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send(), soon ? 0 : PAUSE);
  }

  /** Send what is wished for. */
  async send() {
    clearTimeout(this.timer);
    if (this.sending || this.wanted === null || this.state === "conflict") return;
    const { text, state } = this.wanted;
    const going = { version: this.line.version, ...(text === undefined ? {} : { text }), ...(state === undefined ? {} : { state }) };
    this.sending = true;
    this.wanted = null;
    let answer = null, problem = null;
    try { answer = await patch(`/lines/${this.line.id}`, going, { keepalive: true }); } catch (error) { problem = error; }
    this.sending = false;
    if (problem?.status === 409) {
      const theirs = problem.body.line;
      const same = (text ?? theirs.text) === theirs.text && (state ?? theirs.state) === theirs.state;
      if (same) { answer = theirs; problem = null; } // an answer of ours was lost on its way
      else if (theirs.state === "draft") { // only the machine has read it again
        this.line = theirs;
        this.wanted = { text, state, ...this.wanted };
        return this.send();
      } else {
        this.wanted = { text: text ?? this.line.text, state, ...this.wanted };
        this.#set("conflict");
        this.on.conflict({ text: this.wanted.text, state }, theirs);
        return;
      }
    }
    if (problem) return this.#failed(problem, { text, state });
    this.delay = 0;
    this.line = this.heard && this.heard.version > answer.version ? this.heard : answer;
    this.heard = null;
    if (this.wanted === null) {
      memory.clear(this.key);
      this.#set("saved");
    } else {
      this.timer = setTimeout(() => this.send(), PAUSE);
    }
    this.on.saved(this.line);
  }

  #failed(problem, { text, state }) {
    const back = { ...(text === undefined ? {} : { text }), ...(state === undefined ? {} : { state }) };
    if (problem.status === 404) {
      memory.clear(this.key);
      this.#set("saved");
      this.on.gone(back.text ?? "");
      return;
    }
    this.wanted = { ...back, ...this.wanted };
    this.#set("waiting");
    this.delay = Math.min(10_000, this.delay ? 2 * this.delay : 500);
    this.timer = setTimeout(() => this.send(), this.delay);
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
    this.#set("saved");
    if (mine) this.want(mine, { soon: true });
    else { this.wanted = null; memory.clear(this.key); this.on.saved(theirs); }
  }

  /** The line is no longer shown. */
  leave() { this.send(); }
}

addEventListener("pagehide", () => { for (const saver of unsent) saver.send(); });
addEventListener("beforeunload", (event) => { if (["waiting", "conflict"].includes(savingState())) event.preventDefault(); });
