// Elements, icons, dialogs, menus, messages: everything that makes or shows a piece of the page.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected", "multiple", "indeterminate"]);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name) && name in element) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element: attributes, `onclick` and the like, children. */
export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

/** An SVG element. */
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const PATHS = {
  back: "M15 5l-7 7 7 7", next: "M9 5l7 7-7 7", up: "M5 15l7-7 7 7", down: "M5 9l7 7 7-7",
  plus: "M12 5v14M5 12h14", minus: "M5 12h14", close: "M6 6l12 12M18 6L6 18", check: "M5 12.5l4.5 4.5L19 7.5",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5", cut: "M12 3v18M8.5 7H5v10h3.5M15.5 7H19v10h-3.5",
  join: "M3 8h7v8H3zM14 8h7v8h-7zM10 12h4", trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  draw: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3", shape: "M6 6h12v12H6zM4 4h4v4H4zM16 4h4v4h-4zM4 16h4v4H4zM16 16h4v4h-4z",
  undo: "M8 5L4 9l4 4M4 9h9a6 6 0 010 12H9", clock: "M12 4a8 8 0 110 16 8 8 0 010-16zM12 8v4l3 2",
  book: "M12 6c-2-1.6-5-2-8-2v14c3 0 6 .4 8 2 2-1.6 5-2 8-2V4c-3 0-6 .4-8 2zM12 6v14",
  out: "M12 4v11M7.5 10.5L12 15l4.5-4.5M5 19.5h14", learn: "M4 17l5-6 4 4 7-9M15 6h5v5",
  help: "M9 9a3 3 0 116 .3c0 2.2-3 2.4-3 4.7M12 18v.5", more: "M6 12h.01M12 12h.01M18 12h.01",
  gear: "M4 7h9M17 7h3M4 12h3M11 12h9M4 17h9M17 17h3M15 5v4M9 10v4M15 15v4",
  page: "M6 3h9l4 4v14H6zM14.5 3v4.5H19", lines: "M4 7h16M4 12h16M4 17h10", bad: "M12 4l9 16H3zM12 10v4.5M12 17v.3",
  none: "M12 4a8 8 0 110 16 8 8 0 010-16zM6.5 6.5l11 11", eye: "M3 12c3-5 6-7 9-7s6 2 9 7c-3 5-6 7-9 7s-6-2-9-7zM12 9.5a2.5 2.5 0 110 5 2.5 2.5 0 010-5z",
  folder: "M3 6h6l2 2h10v11H3z", wave: "M4 10v4M8 6v12M12 9v6M16 4v16M20 10v4", copy: "M8 8h12v12H8zM4 16V4h12",
};

/** A small picture; says nothing by itself, so whatever holds it needs a label. */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, s("path", { d: PATHS[name] }));
}

/** A button with a picture; `label` is read aloud and shown as a tip, `text` is also written. */
export function button(name, label, onclick, { text, kind = "", key, ...rest } = {}) {
  return h("button", {
    type: "button", class: `button ${text ? "" : "bare"} ${kind}`, onclick, title: key ? `${label} (${key})` : label,
    "aria-label": !text || label.startsWith(text) ? label : `${text}: ${label}`,
    ...rest,
  }, name && icon(name), text && h("span", {}, text));
}

/** Say something to those who listen to the page. */
export function speak(text) {
  const log = document.getElementById("spoken");
  log.append(h("p", {}, text));
  while (log.childElementCount > 5) log.firstChild.remove();
}

/** A message that goes away by itself; one about a problem stays until it is closed. */
export function toast(text, { action, onaction, bad = false, seconds = 6 } = {}) {
  const shown = h("div", { class: `toast ${bad ? "bad" : ""}` }, h("p", {}, text));
  if (action) shown.append(h("button", { type: "button", class: "button", onclick: () => { shown.remove(); onaction(); } }, action));
  shown.append(button("close", "Close this message", () => shown.remove()));
  const box = document.getElementById("toasts");
  box.append(shown);
  while (box.childElementCount > 4) box.firstChild.remove();
  if (!bad) setTimeout(() => shown.remove(), seconds * 1000);
  return shown;
}

/** What went wrong, as a message. */
export const complain = (error) => { if (error?.name !== "AbortError") toast(error?.message ?? String(error), { bad: true }); };

/** A dialogue over the page; Escape and the cross close it. Gives the element, with `done(value)`. */
export function dialog(title, content, { buttons = [], wide = false, onclose } = {}) {
  const name = `title-${Math.random().toString(36).slice(2)}`;
  const shown = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": name });
  shown.done = () => shown.close();
  shown.append(
    h("header", {}, h("h2", { id: name }, title), button("close", "Close", () => shown.close())),
    h("div", { class: "content" }, content),
  );
  if (buttons.length) {
    shown.append(h("footer", {}, buttons.map(({ text, onclick, kind = "", ...rest }) =>
      h("button", { type: "button", class: `button ${kind}`, onclick: () => onclick(shown), ...rest }, text))));
  }
  shown.addEventListener("click", (event) => { if (event.target === shown) shown.close(); });
  shown.addEventListener("close", () => { shown.remove(); onclose?.(); });
  document.body.append(shown);
  shown.showModal();
  return shown;
}

/** Ask before something is done that cannot be taken back. */
export function confirmed(title, text, action) {
  return new Promise((resolve) => {
    let answer = false;
    dialog(title, h("p", {}, text), {
      onclose: () => resolve(answer),
      buttons: [
        { text: "Cancel", onclick: (shown) => shown.close() },
        { text: action, kind: "danger", onclick: (shown) => { answer = true; shown.close(); } },
      ],
    });
  });
}

/** A button that opens a menu. `entries()`: `{text, onclick, icon, key, checked, note}`, or null for a rule. */
export function menu(opener, entries) {
  const box = h("span", { class: "menu-box" }, opener);
  opener.setAttribute("aria-haspopup", "menu");
  opener.setAttribute("aria-expanded", "false");
  let list = null;
  const close = (back = true) => {
    if (!list) return;
    list.remove();
    list = null;
    opener.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", away, true);
    document.removeEventListener("scroll", away, true);
    removeEventListener("resize", away);
    if (back) opener.focus();
  };
  const away = (event) => { if (!(event.target instanceof Node && box.contains(event.target))) close(false); };
  const open = () => {
    list = h("ul", { class: "menu", role: "menu", "aria-label": opener.getAttribute("aria-label") ?? opener.textContent });
    for (const entry of entries()) {
      if (!entry) { list.append(h("li", { role: "separator" })); continue; }
      const role = entry.checked === undefined ? "menuitem" : "menuitemcheckbox";
      list.append(h("li", { role: "none" }, h("button", {
        type: "button", role, tabindex: -1, disabled: entry.disabled ?? false,
        "aria-checked": entry.checked === undefined ? null : String(entry.checked),
        onclick: () => { close(); entry.onclick(); },
      }, entry.icon ? icon(entry.icon) : h("span", { class: "icon" }, entry.checked ? icon("check") : null),
      h("span", { class: "grow" }, entry.text, entry.note && h("small", {}, entry.note)), entry.key && h("kbd", {}, entry.key))));
    }
    const items = () => [...list.querySelectorAll("button:not(:disabled)")];
    list.addEventListener("keydown", (event) => {
      const all = items(), at = all.indexOf(document.activeElement);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
      if (to !== undefined) { event.preventDefault(); event.stopPropagation(); all.at(to % all.length)?.focus(); }
      else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); close(); }
      else if (event.key === "Tab") close();
    });
    box.append(list);
    const from = opener.getBoundingClientRect(), { width, height } = list.getBoundingClientRect();
    const below = from.bottom + 4 + height <= innerHeight - 8 || from.top < innerHeight - from.bottom;
    list.style.left = `${Math.max(8, Math.min(from.left, document.documentElement.clientWidth - width - 8))}px`;
    list.style.top = `${Math.max(8, Math.min(below ? from.bottom + 4 : from.top - height - 4, innerHeight - height - 8))}px`;
    opener.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", away, true);
    document.addEventListener("scroll", away, true);
    addEventListener("resize", away);
    items()[0]?.focus();
  };
  opener.addEventListener("click", () => (list ? close() : open()));
  opener.openMenu = () => (list ? close() : open());
  return box;
}

/** A bar that tells how far something is. */
export const progress = (done, total, label) => h("progress", { max: Math.max(total, 1), value: done, "aria-label": label });

/** Files and folders that were dropped: `[{file, path}]`. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name }));
  const found = [];
  const walk = async (entry, folder) => {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      found.push({ file, path: folder + file.name });
    } else {
      const reader = entry.createReader();
      for (;;) {
        const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
        if (!part.length) break;
        for (const child of part) await walk(child, `${folder}${entry.name}/`);
      }
    }
  };
  for (const entry of entries) await walk(entry, "");
  return found.sort((a, b) => a.path.localeCompare(b.path, undefined, { numeric: true }));
}

/** Let files be dropped onto an element. */
export function accepts(element, take) {
  const over = (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    element.classList.add("over");
  };
  element.addEventListener("dragenter", over);
  element.addEventListener("dragover", over);
  element.addEventListener("dragleave", (event) => { if (!element.contains(event.relatedTarget)) element.classList.remove("over"); });
  element.addEventListener("drop", async (event) => {
    element.classList.remove("over");
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    event.stopPropagation();
    try { take(await dropped(event.dataTransfer)); } catch (error) { complain(error); }
  });
}

/** Wait until calls have ceased for some milliseconds; `.waiting()` tells whether one is to come, `.now()` does not wait. */
export function calmed(milliseconds, run) {
  let timer = null, given = [];
  const later = (...args) => { clearTimeout(timer); given = args; timer = setTimeout(later.now, milliseconds); };
  later.now = () => { if (timer === null) return; clearTimeout(timer); timer = null; run(...given); };
  later.waiting = () => timer !== null;
  return later;
}

/** A model that was given by its folder, by the folder's name. */
export const modelName = (name) => name.split(/[\\/]/).filter(Boolean).at(-1) ?? name;

const NUMBER = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
export const number = (value) => NUMBER.format(value);
export const percent = (value, digits = 0) => `${(100 * value).toFixed(digits)} %`;
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
/** A stored time as people write it. */
export const when = (text, style = { dateStyle: "medium", timeStyle: "short" }) => {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : date.toLocaleString(undefined, style);
};
