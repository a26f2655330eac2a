// Keys of the desk: one table, from which the page acts and the help is written.

import { dialog, h } from "./dom.js";

/** Name of an action, code of its key (with Alt), how it is shown, what it does. */
export const ACTIONS = [
  ["uncertain", "KeyU", "Alt U", "Next uncertain word"],
  ["signs", "KeyS", "Alt S", "Signs: search by name or code"],
  ["undo", "KeyZ", "Alt Z", "Undo the last saved change of the line"],
  ["history", "KeyH", "Alt H", "History of the line"],
  ["bad", "KeyB", "Alt B", "Bad line: cut wrongly, or not to be read"],
  ["not_text", "KeyN", "Alt N", "Not text"],
  ["split", "KeyX", "Alt X", "Split the line at the cursor"],
  ["join", "KeyJ", "Alt J", "Join with the next line"],
  ["draw", "KeyD", "Alt D", "Draw a new line"],
  ["shape", "KeyO", "Alt O", "Move the outline and baseline"],
  ["play", "KeyA", "Alt A", "Play or pause the recording of the line"],
  ["delete", "Delete", "Alt Del", "Delete the line"],
  ["knowledge", "KeyK", "Alt K", "What is known of the text"],
  ["export", "KeyE", "Alt E", "Export"],
  ["learn", "KeyL", "Alt L", "Learn from the confirmed lines"],
  ["colours", "KeyC", "Alt C", "Colours of confidence on or off"],
  ["follow", "KeyF", "Alt F", "Proposals while typing on or off"],
  ["previousPage", "PageUp", "Alt Page ↑", "Previous page"],
  ["nextPage", "PageDown", "Alt Page ↓", "Next page"],
  ["zoomIn", "Equal", "Alt +", "Zoom in"],
  ["zoomOut", "Minus", "Alt −", "Zoom out"],
  ["whole", "Digit0", "Alt 0", "Show the whole page"],
  ["picture", "KeyP", "Alt P", "Page or lines (on a narrow screen)"],
];
const OTHERS = {
  "The line": [
    ["Enter or ↓", "Confirm the line, go on; a proposal after what is typed is taken first"],
    ["↑", "Back to the line before"],
    ["Alt ↓, Alt ↑", "Go without confirming"],
    ["Tab", "Take the whole proposal"],
    ["→", "Take its next word (at the end of what is typed)"],
    ["Esc", "Do without the proposal"],
    ["Alt 1 … 6", "Take another reading"],
    ["Alt Enter", "The word at the cursor is right; on to the next uncertain one"],
    ["Ctrl Z, Ctrl Y", "Undo and redo what was typed"],
    ["\\code and a space", "A sign by its code, such as \\et"],
    ["Alt Shift ↑, ↓", "Move the line in the order of reading"],
  ],
};

/** The action of a key, or null: `{name, place}`. */
export function actionOf(event) {
  if (event.getModifierState?.("AltGraph")) return null;
  if (event.key === "F1") return { name: "help" };
  if (event.key === "F8") return { name: "uncertain" };
  if (!event.altKey || event.ctrlKey || event.metaKey) return null;
  const { code } = event;
  if (code === "Enter" || code === "NumpadEnter") return { name: "sure" };
  if (code === "Slash") return { name: "help" };
  if (code === "NumpadAdd") return { name: "zoomIn" };
  if (code === "NumpadSubtract") return { name: "zoomOut" };
  if (code === "ArrowDown") return { name: event.shiftKey ? "lower" : "down" };
  if (code === "ArrowUp") return { name: event.shiftKey ? "raise" : "up" };
  if (/^Digit[1-6]$/.test(code)) return { name: "choose", place: Number(code.at(-1)) };
  const found = ACTIONS.find(([, key]) => key === code);
  return found && !event.shiftKey ? { name: found[0] } : null;
}

/** All keys in a dialogue. */
export function help() {
  const table = (rows) => h("table", {}, h("tbody", {}, rows.map(([key, text]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, text)))));
  const shown = ACTIONS.map(([, , key, text]) => [key, text]);
  dialog("Keys", h("div", { class: "help" },
    h("section", {}, h("h3", {}, "The line"), table([...OTHERS["The line"], ...shown.slice(0, 6)])),
    h("section", {}, h("h3", {}, "Lines and page"), table([...shown.slice(6, 12), ...shown.slice(17)]),
      h("h3", {}, "The document"), table([...shown.slice(12, 17), ["? or F1", "This help"]]))), { wide: true });
}
