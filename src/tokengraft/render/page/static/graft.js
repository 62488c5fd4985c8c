// Graft: premium before and after, and how much of the model's behaviour was kept.

// “Every old weight stays” is not true if the body was trained or new tokens replaced old ones.
function whatStays() {
  return page.grafts.some((graft) => graft.trained || graft.replaced)
    ? "New tokens get rows in a pretrained model; what else changed is listed below."
    : "New tokens get rows in a frozen model; every old weight stays, byte for byte.";
}

// The method, with its settings folded away: they are for whoever repeats it.
function rowsBy({ method, params }) {
  const settings = Object.entries(params).map(([k, v]) => `${k} ${JSON.stringify(v)}`);
  if (!method || !settings.length) return method;
  return el("details", {}, el("summary", {}, `${method}, ${counted(settings.length, "setting")}`), settings.join(" · "));
}

// What the graft's own plan states, where it was measured.
const premiumsOf = (graft) => graft.premiums.filter((l) => l.premium_before !== null && l.premium_after !== null);

function graftCard(graft) {
  const table = graft.table;
  const facts = [
    ["Base", graft.base],
    ["Languages", graft.languages.map((l) => l.name).join(", ")],
    ["Premium", premiumsOf(graft).map((l) => `${l.name} ${times(l.premium_before)} → ${times(l.premium_after)}`).join(", ")],
    ["Rows by", rowsBy(graft)],
    ["Output", graft.policy && [graft.policy, graft.writes].filter(Boolean).join(": ")],
    ["Also trained", graft.trained && !graft.lanes ? `${counted(graft.trained, "tensor")} of the body` : null],
    ["Lanes", graft.lanes ? `${count(graft.lanes)} dimensions of the body that only new tokens use` : null],
    ["Replaced", graft.replaced ? counted(graft.replaced, "old token") : null],
    ["Embeddings", table.before ? `${count(table.before)} → ${count(table.after)} rows of ${count(table.width ?? 0)} numbers` : null],
  ];
  return el(
    "article",
    { class: "card" },
    el("h3", {}, graft.name),
    graft.verdict ? el("p", { class: "verdict" }, graft.verdict) : null,
    el("dl", { class: "facts-list" }, facts.filter(([, v]) => v).map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])),
  );
}

// Premium before and after as two dots on one log axis.
function dumbbells(languages_, width) {
  const [left, row, top] = [Math.min(150, width * 0.34), 28, 6];
  const height = top + row * languages_.length + 24;
  const high = Math.max(4, ...languages_.map((l) => l.premium_before ?? 0)) * 1.15;
  const x = logScale(0.5, high, left, width - 52);
  const parts = PREMIUM_TICKS.filter((v) => v < high).flatMap((v) => [
    shape("line", { x1: x(v), x2: x(v), y1: top, y2: height - 22, class: v === 1 ? "rule one" : "rule" }),
    shape("text", { x: x(v), y: height - 6, class: "tick middle" }, `${v}×`),
  ]);
  languages_.forEach((l, i) => {
    const y = top + row * i + row / 2;
    const [a, b] = [l.premium_before, l.premium_after];
    parts.push(
      shape("text", { x: left - 12, y: y + 4, class: "label end" }, l.name),
      shape("line", { x1: x(b), x2: x(a), y1: y, y2: y, class: "span" }),
      shape("circle", { cx: x(a), cy: y, r: 6, class: `mid ${premiumClass(a)}` }),
      shape("circle", { cx: x(b), cy: y, r: 6, class: `mid after ${premiumClass(b)}` }),
      shape("text", { x: x(a) + 11, y: y + 4, class: "tick" }, plain(a)),
      shape("text", { x: x(b) - 11, y: y + 4, class: "tick end" }, plain(b)),
    );
  });
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": languages_.map((l) => `${l.name} ${times(l.premium_before)} before, ${times(l.premium_after)} after`).join("; ") }, parts);
}

// One measure: a row per language and method, with floor and ceiling as ticks.
function scoreChart(scores, width) {
  const [left, row, top] = [Math.min(190, width * 0.38), 26, 6];
  const numbers = scores.flatMap((s) => [s.value, s.floor, s.ceiling, s.low, s.high]).filter((v) => v !== null);
  const [low, high] = [Math.min(0, ...numbers), Math.max(...numbers, 1e-9)];
  const top_ = high <= 1 && high > 0.5 ? 1 : high * 1.05;
  const x = (v) => left + ((width - left - 60) * (v - low)) / (top_ - low || 1);
  const height = top + row * scores.length + 22;
  const parts = [low, (low + top_) / 2, top_].map((v) =>
    shape("text", { x: x(v), y: height - 6, class: "tick middle" }, String(Number(v.toPrecision(2)))));
  scores.forEach((s, i) => {
    const y = top + row * i + row / 2;
    const name = [s.name, s.method].filter(Boolean).join(", ") || s.measure;
    parts.push(
      shape("text", { x: left - 12, y: y + 4, class: "label end" }, name.length > 28 ? `${name.slice(0, 27)}…` : name),
      shape("rect", { x: x(low), y: y - 5, width: Math.max(1, x(s.value) - x(low)), height: 10, rx: 2, class: "score" }),
    );
    if (s.low !== null && s.high !== null) parts.push(shape("line", { x1: x(s.low), x2: x(s.high), y1: y, y2: y, class: "interval" }));
    for (const [key, look] of [["floor", "tick-floor"], ["ceiling", "tick-ceiling"]]) {
      if (s[key] !== null) parts.push(shape("line", { x1: x(s[key]), x2: x(s[key]), y1: y - 9, y2: y + 9, class: look }));
    }
    parts.push(shape("text", { x: width - 52, y: y + 4, class: "tick" }, String(s.value)));
  });
  const words = scores.map((s) => `${[s.name, s.method].filter(Boolean).join(", ")}: ${s.value}${s.floor === null ? "" : `, floor ${s.floor}`}${s.ceiling === null ? "" : `, ceiling ${s.ceiling}`}`);
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words.join("; ") }, parts);
}

// The name of a language, from whichever part of the page knows it.
function languageName(code) {
  const parts = [...page.audits, ...page.plans, ...page.grafts];
  return parts.flatMap((part) => part.languages).find((entry) => entry.code === code)?.name ?? code;
}

// The legend of a chart, with only the marks that are in it.
function scoreLegend(scores) {
  const has = (key) => scores.some((s) => s[key] !== null);
  return [
    ["score", has("low") ? "measured, with its interval" : "measured"],
    has("floor") ? ["tick-floor", "floor: what a model that kept nothing scores"] : null,
    has("ceiling") ? ["tick-ceiling", "ceiling: what the unchanged model scores on the same text cut another way"] : null,
  ].filter(Boolean).map(([look, text]) => el("li", {}, el("i", { class: look }), text));
}

function drawEvaluation(evaluation) {
  const names = Object.entries(evaluation.measures).map(([key, [name]]) => [key, name]);
  let measure = "kl" in evaluation.measures ? "kl" : names[0][0];
  const plot = el("div", { class: "plot" });
  const words = el("p", { class: "measure" });
  const legend = el("ul", { class: "groups" });
  const exactly = el("p", { class: "status" });
  const paint = fitted(plot, (width) => {
    const scores = evaluation.scores.filter((s) => s.measure === measure && s.value !== null).slice(0, 60);
    const definition = scores[0]?.definition;
    words.textContent = evaluation.measures[measure][1];
    exactly.textContent = definition ? `Exactly: ${definition}.` : "";
    draw(legend, scoreLegend(scores));
    draw(plot, scoreChart(scores, width));
  });
  return el(
    "article",
    {},
    el("h3", {}, evaluation.title),
    evaluation.verdicts.map((said) => el("p", { class: "verdict" }, said)),
    el("div", { class: "controls" }, choice("Measure", names, measure, (v) => {
      measure = v;
      paint();
    }, { id: "score-measure" })),
    words,
    legend,
    plot,
    exactly,
    evaluation.writing.map((said) => el("p", { class: "writing" }, `${said}.`)),
    evaluation.notes.map((note) => el("p", { class: "status" }, `Note: ${note}.`)),
    evaluation.costs.length ? costTable(evaluation.costs) : null,
    evaluation.samples.length ? [el("h4", {}, "Samples"), el("div", { class: "samples" }, evaluation.samples.map((s) =>
      el("dl", {}, Object.entries(s).map(([k, v]) => [el("dt", {}, k === "way" ? "decoded" : k.replaceAll("_", " ")), el("dd", { dir: k === "language" ? "ltr" : "auto" }, k === "language" ? languageName(v) : tamed(v))]))))] : null,
  );
}

// What reading and writing cost, before → after.
const COSTS = [
  ["tokens_per_prompt", "Tokens per prompt"],
  ["prefill_ms_per_character", "Reading, ms per character"],
  ["decode_ms_per_character", "Writing, ms per character"],
  ["characters_per_token_out", "Characters per written token"],
  ["cache_bytes_per_character", "Cache, bytes per character"],
];

const promptsOf = (costs) => (new Set(costs.map((row) => row.prompts)).size === 1 && costs[0].prompts ? `, ${counted(costs[0].prompts, "prompt")} per language` : "");

function costTable(costs) {
  const shown = (v) => (v === null ? "–" : v < 100 ? String(Number(v.toPrecision(3))) : count(Number(v.toPrecision(3))));
  return el(
    "div",
    { class: "scroller plain", role: "region", "aria-label": "What generation costs", tabindex: "0" },
    el(
      "table",
      { class: "costs" },
      el("caption", {}, `What generation costs, before → after, both models in turn on one machine${promptsOf(costs)}`),
      el("thead", {}, el("tr", {}, ["Language", ...COSTS.map(([, text]) => text)].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, costs.map((row) =>
        el("tr", {}, el("th", { scope: "row" }, row.name), COSTS.map(([key]) => el("td", {}, row[key].map(shown).join(" → ")))))),
    ),
  );
}

// Several evaluations share one chart, in which each is a method named after its graft or folder.
function evaluationsShown() {
  const called = (e) => {
    const twins = page.evaluations.filter((other) => other.graft === e.graft).length > 1;
    return e.graft && !twins ? e.graft : e.name;
  };
  const all = page.evaluations.filter((e) => e.scores.length).map((e) => ({ ...e, name: called(e) }));
  if (all.length < 2) {
    return all.map((e) => ({ ...e, verdicts: [e.verdict].filter(Boolean), title: e.graft && e.base ? `How much of ${e.base} was kept in ${e.graft}` : `How much was kept: ${e.name}` }));
  }
  return [{
    title: `How much was kept: ${listed(all.map((e) => e.name))}`,
    verdicts: all.filter((e) => e.verdict).map((e) => `${e.name}: ${e.verdict}`),
    measures: Object.assign({}, ...all.map((e) => e.measures)),
    notes: [...new Set(all.flatMap((e) => e.notes.map((note) => `${e.name}: ${note}`)))],
    scores: all.flatMap((e) => e.scores.map((s) => ({ ...s, method: s.method ? `${e.name} ${s.method}` : e.name }))),
    writing: all.flatMap((e) => e.writing.map((said) => `${e.name}: ${said}`)),
    costs: all.flatMap((e) => e.costs.map((row) => ({ ...row, name: `${row.name}, ${e.name}` }))),
    samples: all.flatMap((e) => e.samples),
  }];
}

sections.push({
  id: "graft",
  name: "Graft",
  needs: () => page.grafts.length > 0 || page.evaluations.length > 0,
  draw(host) {
    const several = page.grafts.length > 1;
    const planned = page.grafts.flatMap((g) => premiumsOf(g).map((l) => ({ ...l, name: several ? `${l.name}, ${g.name}` : l.name })));
    const shown = evaluationsShown();
    const floors = shown.some((e) => e.scores.some((s) => s.floor !== null));
    const plot = el("div", { class: "plot" });
    if (planned.length) fitted(plot, (width) => draw(plot, dumbbells(planned, width)));
    draw(
      host,
      heading("graft", "Grafted into a model", whatStays() + (floors ? " A score is read against its floor, and its ceiling where there is one." : "")),
      planned.length ? [el("h3", {}, "Premium before and after, as its plan states it"), plot] : null,
      shown.map(drawEvaluation),
      el("div", { class: "pair grafts" }, page.grafts.map(graftCard)),
    );
  },
});
