// Texts: code points, differences, words.

/** Code points of a text. */
export const points = (text) => Array.from(text);

/** How many code points lie before a UTF-16 index. */
export const pointAt = (text, index) => points(text.slice(0, index)).length;

/** The UTF-16 index of a code point. */
export const indexOf = (text, point) => points(text).slice(0, point).join("").length;

/** The difference of two sequences: `[{kind: "same" | "gone" | "new", items}]`, by longest common subsequence. */
export function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const a = before.slice(start, before.length - end), b = after.slice(start, after.length - end);
  const width = b.length + 1;
  const best = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i * width + j] = a[i] === b[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  const parts = [];
  const add = (kind, item) => { if (parts.at(-1)?.kind === kind) parts.at(-1).items.push(item); else parts.push({ kind, items: [item] }); };
  for (const item of before.slice(0, start)) add("same", item);
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { add("same", a[i]); i++; j++; }
    else if (j >= b.length || (i < a.length && best[(i + 1) * width + j] >= best[i * width + j + 1])) add("gone", a[i++]);
    else add("new", b[j++]);
  }
  for (const item of before.slice(before.length - end)) add("same", item);
  return parts;
}

/** Which code points of `text` stand in `reading` too, in order: what the machine wrote and nobody changed. */
export function unchanged(reading, text) {
  const kept = [];
  for (const { kind, items } of difference(points(reading), points(text))) {
    if (kind !== "gone") for (let i = 0; i < items.length; i++) kept.push(kind === "same");
  }
  return kept;
}

/** Places where two texts differ, word by word: `[{gone, new}]`. */
export function changedWords(before, after) {
  const changes = [];
  let open = null;
  for (const { kind, items } of difference(before.split(" "), after.split(" "))) {
    if (kind === "same") { open = null; continue; }
    if (!open) { open = { gone: "", new: "" }; changes.push(open); }
    open[kind] = items.join(" ");
  }
  return changes;
}

/** Words of a text with their code points: `[{start, end}]`. */
export function words(text) {
  const found = [];
  points(text).forEach((character, at) => {
    if (/\s/u.test(character)) return;
    if (found.length && found.at(-1).end === at) found.at(-1).end++;
    else found.push({ start: at, end: at + 1 });
  });
  return found;
}

/** A sign as it can be seen by itself: marks stand on a circle. */
export const visible = (character) => (/^\p{M}/u.test(character) ? `\u25cc${character}` : character);
