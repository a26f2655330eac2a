// The interface of the server. The page uses nothing else; `/docs` describes it.

/** An answer that is a complaint: `status`, and `body` as the server sent it. 0: no answer at all. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.error ?? (status ? `the server answered ${status}.` : "the server does not answer."));
    this.status = status;
    this.body = body;
  }

  /** Whether the same may work in a moment. */
  get passing() { return this.status === 0 || this.status === 429 || this.status >= 502; }
}

/** Who is writing, for the history of a line. */
export const client = {
  get name() { try { return localStorage.getItem("fada.name") || "somebody"; } catch { return "somebody"; } },
  set name(value) { try { localStorage.setItem("fada.name", value); } catch { /* private window */ } },
};
const inHeader = (name) => name.normalize("NFKD").replace(/[^\x20-\x7e]/g, "").slice(0, 60) || "somebody";

async function answer(response) {
  if (response.ok) return response.status === 204 ? null : response.json();
  let body = null;
  try { body = await response.json(); } catch { /* not ours */ }
  throw new Problem(response.status, body);
}

/** Ask the server: JSON or a form goes, JSON comes. */
export async function ask(method, path, body, options = {}) {
  const headers = { "x-desk-client": inHeader(client.name) };
  const form = body instanceof FormData;
  if (body !== undefined && !form) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(`/api${path}`, { method, headers, body: body === undefined || form ? body : JSON.stringify(body), ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, null);
  }
  return answer(response);
}

export const get = (path, options) => ask("GET", path, undefined, options);
export const post = (path, body, options) => ask("POST", path, body, options);
export const put = (path, body, options) => ask("PUT", path, body, options);
export const patch = (path, body, options) => ask("PATCH", path, body, options);
export const remove = (path) => ask("DELETE", path);

/** Send files; `ontold(fraction)` while they go. */
export function upload(path, form, ontold) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/api${path}`);
    request.setRequestHeader("x-desk-client", inHeader(client.name));
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && ontold?.(event.loaded / event.total);
    request.onload = () => (request.status < 300 ? resolve(request.response) : reject(new Problem(request.status, request.response)));
    request.onerror = () => reject(new Problem(0, null));
    request.send(form);
  });
}

const hearers = new Set();
let source = null;
let connected = null;

function tell(kind, value) { for (const hearer of [...hearers]) hearer[kind]?.(value); }

function open() {
  source?.close();
  source = new EventSource("/api/events");
  source.onopen = () => {
    if (!connected) tell("lost"); // what happened before is not told again, from the first moment on
    connected = true;
    tell("online", true);
  };
  source.onerror = () => {
    connected = false;
    tell("online", false);
    if (source.readyState === EventSource.CLOSED) setTimeout(() => !document.hidden && open(), 2000);
  };
  for (const kind of ["job", "line", "page", "knowledge", "lost"]) source.addEventListener(kind, (event) => tell(kind, JSON.parse(event.data)));
}

/** Hear what happens at the desk: `{job, line, page, knowledge, lost, online}`. Gives what ends it. */
export function hear(hearer) {
  hearers.add(hearer);
  if (!source) open();
  return () => hearers.delete(hearer);
}

// A browser has six connections to a server: a tab that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { source?.close(); connected = false; } else if (source) open();
});
