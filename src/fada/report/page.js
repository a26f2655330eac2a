"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const PAGE = 25;

  /* ---- theme: follows the system until the reader chooses ---- */
  const root = document.documentElement;
  const remember = { get: () => { try { return localStorage.getItem("fada-theme"); } catch { return null; } },
                     set: (value) => { try { localStorage.setItem("fada-theme", value); } catch { /* storage is a courtesy */ } } };
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (systemDark.matches ? "dark" : "light")) === "dark";
  const themeButton = byId("theme");
  const nameTheme = () => {
    themeButton.textContent = isDark() ? "☀ Light" : "☾ Dark";
    themeButton.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  };
  if (["dark", "light"].includes(remember.get())) root.dataset.theme = remember.get();
  themeButton.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; remember.set(root.dataset.theme); nameTheme(); });
  systemDark.addEventListener("change", nameTheme);
  nameTheme();

  /* ---- tables: copy for the paper ---- */
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* older browsers below */ }
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const done = await copy(data.exports[button.dataset.table][button.dataset.copy]);
      button.textContent = done ? "Copied" : "Not copied";
      setTimeout(() => { button.textContent = label; }, 1600);
    });
  }

  /* ---- character differences over grapheme clusters, so that no mark is torn from its letter ---- */
  const segmenter = self.Intl && Intl.Segmenter ? new Intl.Segmenter(undefined, { granularity: "grapheme" }) : null;
  const graphemes = (text) => segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : text.match(/\P{M}\p{M}*|\p{M}+/gu) || [];
  const align = (reference, hypothesis) => {
    const a = graphemes(reference), b = graphemes(hypothesis), width = b.length + 1;
    const cost = new Uint16Array((a.length + 1) * width);
    for (let j = 0; j < width; j++) cost[j] = j;
    for (let i = 1; i <= a.length; i++) {
      cost[i * width] = i;
      for (let j = 1; j < width; j++) {
        const at = i * width + j;
        cost[at] = Math.min(cost[at - width - 1] + (a[i - 1] === b[j - 1] ? 0 : 1), cost[at - width] + 1, cost[at - 1] + 1);
      }
    }
    const steps = [];
    let i = a.length, j = b.length;
    while (i > 0 || j > 0) {
      const at = i * width + j;
      if (i > 0 && j > 0 && cost[at] === cost[at - width - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)) {
        i--; j--;
        steps.push({ kind: a[i] === b[j] ? "ok" : "sub", text: b[j], expected: a[i], place: i });
      } else if (i > 0 && cost[at] === cost[at - width] + 1) {
        i--;
        steps.push({ kind: "del", text: a[i], expected: a[i], place: i });
      } else {
        j--;
        steps.push({ kind: "ins", text: b[j], expected: "", place: -1 });
      }
    }
    return steps.reverse();
  };

  /* ---- small DOM helpers: text only ever enters through text nodes ---- */
  const make = (tag, className, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children);
    return node;
  };
  const number = (value, digits) => value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
  const isolated = (...children) => { const node = make("bdi", "text", ...children); node.dir = "auto"; return node; };
  const KINDS = { sub: "read instead of", ins: "not in the reference", del: "missing", fixed: "right only in this reading" };

  const marked = (steps, otherRight) => {
    if (!steps.length) return [make("span", "empty", "(empty)")];
    const runs = [];
    for (const step of steps) {
      const kind = step.kind === "ok" && otherRight && !otherRight.has(step.place) ? "fixed" : step.kind;
      const last = runs[runs.length - 1];
      if (last && last.kind === kind) { last.text += step.text; last.expected += step.expected; } else runs.push({ kind, text: step.text, expected: step.expected });
    }
    return runs.map((run) => {
      if (run.kind === "ok") return run.text;
      const node = make("mark", run.kind, run.text);
      node.title = run.kind === "sub" ? `${KINDS.sub} ${run.expected}` : KINDS[run.kind];
      return node;
    });
  };
  const rightPlaces = (steps) => new Set(steps.filter((step) => step.kind === "ok").map((step) => step.place));

  /* a line is [id, set, domain, texts (reference first), readings by system [text, errors, log_prob, distance, score] or null, length, image number or -1] */
  const ID = 0, SET = 1, DOMAIN = 2, TEXTS = 3, READINGS = 4, LENGTH = 5, IMAGE = 6;
  const ERRORS = 1;

  const controls = Object.fromEntries(["set", "before", "after", "domain", "change", "sort", "search"].map((name) => [name, byId(name)]));
  const defaults = Object.fromEntries(Object.entries(controls).map(([name, control]) => [name, control ? control.value : null]));
  const list = byId("lines");
  if (!list) return;
  let chosen = [], page = 0;

  const folded = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  const haystacks = new Map();
  const haystack = (line) => {
    if (!haystacks.has(line)) haystacks.set(line, folded([line[ID], ...line[TEXTS]].join("\n")));
    return haystacks.get(line);
  };
  const change = (line, before, after) => line[READINGS][after][ERRORS] - line[READINGS][before][ERRORS];
  const rate = (line, system) => line[READINGS][system][ERRORS] / Math.max(line[LENGTH], 1);

  const CHANGES = {
    all: () => true,
    differ: (line, b, a) => line[READINGS][b][0] !== line[READINGS][a][0],
    better: (line, b, a) => change(line, b, a) < 0,
    worse: (line, b, a) => change(line, b, a) > 0,
    equal: (line, b, a) => change(line, b, a) === 0,
    errors: (line, b, a) => line[READINGS][a][ERRORS] > 0,
    perfect: (line, b, a) => line[READINGS][a][ERRORS] === 0,
  };
  const SORTS = {
    changed: (b, a) => (x, y) => Math.abs(change(y, b, a)) - Math.abs(change(x, b, a)),
    better: (b, a) => (x, y) => change(x, b, a) - change(y, b, a),
    worse: (b, a) => (x, y) => change(y, b, a) - change(x, b, a),
    errors: (b, a) => (x, y) => rate(y, a) - rate(x, a),
    "errors-before": (b) => (x, y) => rate(y, b) - rate(x, b),
    distance: (b, a) => (x, y) => (y[READINGS][a][3] ?? -1) - (x[READINGS][a][3] ?? -1),
    unsure: (b, a) => (x, y) => (x[READINGS][a][2] ?? 0) / Math.max(x[LENGTH], 1) - (y[READINGS][a][2] ?? 0) / Math.max(y[LENGTH], 1),
    length: () => (x, y) => y[LENGTH] - x[LENGTH],
    order: () => () => 0,
  };

  const select = () => {
    const before = Number(controls.before.value), after = Number(controls.after.value);
    const words = folded(controls.search.value.trim());
    const domain = controls.domain.value;
    chosen = data.lines.filter((line) =>
      line[READINGS][before] && line[READINGS][after] &&
      (domain === "" || line[DOMAIN] === Number(domain)) &&
      CHANGES[controls.change.value](line, before, after) &&
      (!words || haystack(line).includes(words)));
    chosen.sort(SORTS[controls.sort.value](before, after));
    page = 0;
    draw();
  };

  const reading = (line, system, steps, otherRight, className) => {
    const [, errors, logProb, distance, score] = line[READINGS][system];
    const parts = make("span", "parts num", make("b", "", `${errors} ${errors === 1 ? "error" : "errors"}`), ` · CER ${number(100 * rate(line, system), 1)} %`);
    const scores = [["log P", logProb, 2], ["W₂", distance, 4], ["score", score, 3]].filter(([, value]) => value !== null);
    if (scores.length) parts.append(document.createElement("br"), scores.map(([name, value, digits]) => `${name} ${number(value, digits)}`).join(" · "));
    return make("div", `row ${className}`, make("span", "who", data.systems[system]), isolated(...marked(steps, otherRight)), parts);
  };

  const item = (line) => {
    const before = Number(controls.before.value), after = Number(controls.after.value);
    const delta = change(line, before, after);
    const stepsBefore = align(line[TEXTS][0], line[TEXTS][line[READINGS][before][0]]);
    const stepsAfter = align(line[TEXTS][0], line[TEXTS][line[READINGS][after][0]]);
    const head = make("div", "line-head", make("span", "code", line[ID]));
    if (data.sets.length > 1) head.append(make("span", "", data.sets[line[SET]]));
    if (line[DOMAIN] >= 0) head.append(make("bdi", "chip", data.domains[line[DOMAIN]]));
    const count = `${Math.abs(delta)} ${Math.abs(delta) === 1 ? "error" : "errors"}`;
    head.append(make("span", delta < 0 ? "better" : delta > 0 ? "worse" : "same", delta < 0 ? `▼ ${count} fewer` : delta > 0 ? `▲ ${count} more` : "= same number of errors"));
    const node = make("li", "line", head);
    const picture = data.images[line[IMAGE]];
    if (picture) {
      const image = make("img");
      image.src = `data:${data.imageType};base64,${picture[2]}`;
      image.width = Math.round(picture[0] * 1.35); image.height = Math.round(picture[1] * 1.35);
      image.alt = `Image of line ${line[ID]}`;
      image.decoding = "async";
      node.append(make("div", "strip", image));
    }
    node.append(
      make("div", "row ref", make("span", "who", "Reference"), isolated(line[TEXTS][0] || make("span", "empty", "(empty)")), make("span", "parts num", `${line[LENGTH]} characters`)),
      reading(line, before, stepsBefore, null, "r0"),
      reading(line, after, stepsAfter, rightPlaces(stepsBefore), "r1"));
    return node;
  };

  const draw = () => {
    const pages = Math.max(1, Math.ceil(chosen.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    list.replaceChildren(...chosen.slice(page * PAGE, (page + 1) * PAGE).map(item));
    if (!chosen.length) list.append(make("li", "line muted", "No line matches. Widen the filters or reset them."));
    byId("count").textContent = `${chosen.length.toLocaleString("en")} of ${data.lines.length.toLocaleString("en")} lines`;
    for (const pager of document.querySelectorAll(".pager")) {
      pager.querySelector(".where").textContent = `Page ${page + 1} of ${pages}`;
      pager.querySelector(".back").disabled = page === 0;
      pager.querySelector(".forth").disabled = page === pages - 1;
    }
  };
  const turn = (by) => { page += by; draw(); byId("lines-top").scrollIntoView({ block: "start" }); };
  for (const pager of document.querySelectorAll(".pager")) {
    pager.querySelector(".back").addEventListener("click", () => turn(-1));
    pager.querySelector(".forth").addEventListener("click", () => turn(1));
  }

  /* systems belong to a data set; choosing another set chooses its pair */
  const fill = (control, options, value) => {
    control.replaceChildren(...options.map(([key, text]) => { const option = make("option", "", text); option.value = key; return option; }));
    control.value = String(value);
  };
  const chooseSet = (index) => {
    const set = data.pairs[index];
    const systems = set.systems.map((system) => [system, data.systems[system]]);
    fill(controls.before, systems, set.before);
    fill(controls.after, systems, set.after);
    fill(controls.domain, [["", "all"], ...set.domains.map((domain) => [domain, data.domains[domain]])], "");
  };
  let typing;
  controls.search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(select, 120); });
  for (const [name, control] of Object.entries(controls)) {
    if (control && name !== "search" && name !== "set") control.addEventListener("change", select);
  }
  if (controls.set) controls.set.addEventListener("change", () => { chooseSet(Number(controls.set.value)); select(); });
  byId("reset").addEventListener("click", () => {
    for (const name of ["change", "sort", "search"]) controls[name].value = defaults[name];
    chooseSet(controls.set ? Number(controls.set.value) : 0);
    select();
  });
  for (const link of document.querySelectorAll("a[data-domain]")) {
    link.addEventListener("click", () => {
      if (controls.set) { controls.set.value = link.dataset.set; }
      chooseSet(Number(link.dataset.set));
      controls.domain.value = link.dataset.domain;
      select();
    });
  }
  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details.print")) details.open = true; });
  chooseSet(0);
  select();
})();
