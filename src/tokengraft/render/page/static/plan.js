// Plan: premium against number of new tokens, with a slider up to all of the plan's.

// The curve's value at a budget: the last point not beyond it.
function atBudget(curve, budget, column) {
  let found = curve[0];
  for (const point of curve) if (point[0] <= budget) found = point;
  return found?.[column] ?? null;
}

// Where slider and curves end: at what the plan has, which may be less than was asked for.
function planEnd(plan) {
  return Math.max(1, plan.count, ...plan.languages.flatMap((l) => l.curve.map((p) => p[0])));
}

// A step of 1, 2 or 5 times a power of ten, of which about four make up `end`.
function roundStep(end) {
  const power = 10 ** Math.floor(Math.log10(end / 4));
  return Math.max(1, power * [1, 2, 5, 10].find((n) => n * power >= end / 4));
}

// The premium if a test corpus gave one, else the length of the planning text relative to before.
function planValue(language, budget) {
  const premium = atBudget(language.curve, budget, 1);
  if (premium !== null) return premium;
  const tokens = atBudget(language.curve, budget, 2);
  return tokens === null || !language.planning_before ? null : tokens / language.planning_before;
}

// Whether so much of the test text is UNK at this budget that the premium is not honest.
function planLost(plan, language, budget, last) {
  const [before, after] = [language.unk_share_before, language.unk_share_after];
  const share = language.curve.length ? atBudget(language.curve, budget, 3) : last ? after : before;
  return share !== null && share !== undefined && share > plan.unkLimit;
}

// What a plan's figures are: premiums over its own pivot, which may differ from the audit's.
const planMeasure = (plan) =>
  !plan.languages.some((l) => l.premium_before !== null || l.curve.some((p) => p[1] !== null))
    ? "Length of the text in tokens, against before"
    : plan.pivotName ? `Premium over ${plan.pivotName}` : "Premium";

function paintPlan(host, plan, budget, width) {
  const height = Math.max(300, Math.min(440, width * 0.45));
  const [left, right, top, bottom] = [46, width < 500 ? 76 : 120, 28, 44];
  const curves = plan.languages.filter((l) => l.curve.length);
  const end = planEnd(plan);
  const values = curves.flatMap((l) => l.curve.map((p) => planValue(l, p[0]))).filter((v) => v !== null);
  const most = Math.max(2, ...values) * 1.05;
  const x = (n) => left + ((width - left - right) * n) / end;
  const y = (v) => height - bottom - ((height - top - bottom) * v) / most;
  const step = most > 12 ? 5 : most > 5 ? 2 : 1;
  const parts = [];
  for (let v = 0; v < most; v += step) {
    parts.push(
      shape("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "rule" }),
      shape("text", { x: left - 8, y: y(v) + 4, class: "tick end" }, `${v}×`),
    );
  }
  if (most > 1) parts.push(shape("line", { x1: left, x2: width - right, y1: y(1), y2: y(1), class: "rule one" }));
  const even = roundStep(end);
  for (let n = 0; n <= end; n += even) {
    parts.push(shape("text", { x: x(n), y: height - bottom + 20, class: "tick middle" }, count(n)));
  }
  parts.push(shape("text", { x: (left + width - right) / 2, y: height - 4, class: "tick middle" }, "new tokens"));
  parts.push(shape("text", { x: left - 34, y: 10, class: "tick" }, planMeasure(plan)));
  parts.push(shape("line", { x1: x(budget), x2: x(budget), y1: top, y2: height - bottom, class: "now" }));
  const ends = curves.map((l, i) => ({ l, i, at: y(planValue(l, end) ?? 0) })).sort((a, b) => a.at - b.at);
  // If there are many, only the languages that pay most at the start or the end are named.
  const named = new Set(curves.length <= MANY ? curves : [0, end].flatMap((n) => [...curves].sort((a, b) => (planValue(b, n) ?? 0) - (planValue(a, n) ?? 0)).slice(0, MANY / 4)));
  let last = -Infinity;
  for (const e of ends) {
    if (!named.has(e.l)) continue;
    e.text = Math.max(e.at, last + 15);
    last = e.text;
  }
  for (const { l, i, text } of ends) {
    const line = l.curve.map((p) => `${x(p[0]).toFixed(1)},${y(planValue(l, p[0]) ?? 0).toFixed(1)}`).join(" ");
    if (!named.has(l)) {
      parts.unshift(shape("polyline", { points: line, class: "crowd" }));
      continue;
    }
    const now = planValue(l, budget);
    parts.push(
      shape("polyline", { points: line, class: `curve ${lineClass(i)}` }),
      shape("text", { x: width - right + 8, y: text + 4, class: `label line-name ${lineClass(i)}` }, l.name),
    );
    if (now !== null) parts.push(shape("circle", { cx: x(budget), cy: y(now), r: 5, class: `dot ${lineClass(i)}` }));
  }
  draw(host, shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${planMeasure(plan)}, by number of new tokens: ${curves.filter((l) => named.has(l)).map((l) => `${l.name} from ${times(planValue(l, 0))} to ${times(planValue(l, end))}`).join(", ")}` }, parts));
}

function otherPivot(plan) {
  const own = page.audits.length && plan.pivotName && pivot().code !== plan.pivot;
  return own ? `; the premiums of the audit are over ${pivot().name}` : "";
}

// If there are many, only the languages that paid most before; `whoGains` shows all.
function planTable(plan, budget) {
  const shown = plan.languages.length <= MANY ? plan.languages : [...plan.languages].sort((a, b) => (b.premium_before ?? 0) - (a.premium_before ?? 0)).slice(0, MANY);
  return shown.map((l) => {
    const [before, now] = [l.curve.length ? planValue(l, 0) : l.premium_before, l.curve.length ? planValue(l, budget) : l.premium_after];
    return el(
      "li",
      {},
      el("strong", {}, l.name),
      el("span", { class: "from" }, before === null ? "–" : `${times(before)}${planLost(plan, l, 0, false) ? "†" : ""}`),
      el("span", { "aria-hidden": "true" }, "→"),
      el("span", { class: `to ${now === null ? "none" : premiumClass(now)}` }, now === null ? "–" : `${times(now)}${planLost(plan, l, budget, true) ? "†" : ""}`),
    );
  });
}

// How words are cut now, where the plan changes that.
function planCuts(plan) {
  const marks = plan.relaxed.filter((script) => script !== "Latin");
  const said = marks.length ? [`words in ${listed(marks)} script are no longer cut at vowel signs`] : [];
  if (plan.relaxed.includes("Latin")) said.push("Latin words keep digits that stand for letters");
  return said.map((one) => `; ${one}`).join("");
}

// Makes spaces visible, and puts a leading combining mark on a dotted circle.
function shownToken(text) {
  const shown = [...text].map((c) => (c === " " ? "␣" : CONTROLS.test(c) ? codePoint(c) : c)).join("");
  return MARK.test(shown) ? `◌${shown}` : shown;
}

function drawPlan(plan, number) {
  const end = planEnd(plan);
  const step = Math.max(1, Math.round(end / 200));
  let budget = end;
  const plot = el("div", { class: "plot" });
  const list = el("ul", { class: "before-after" });
  const shown = el("output", { for: `budget-${number}` });
  const tokens = el("div", { class: "chips-list" });
  const paint = fitted(plot, (width) => paintPlan(plot, plan, budget, width));
  const update = () => {
    shown.textContent = `${count(budget)} new tokens`;
    draw(list, planTable(plan, budget));
    const first = plan.tokens.slice(0, Math.min(60, budget));
    draw(tokens, first.map((t) => Array.isArray(t.shown)
      ? el("span", { class: "hex k1", "data-script": t.script }, bytesShown(t.shown[0]))
      : el("span", { class: "new-token", "data-script": t.script, title: `used ${count(t.count ?? 0)} times, replaces ${t.parts} tokens` }, shownToken(t.shown))));
    paint();
  };
  const slider = el("input", {
    type: "range", id: `budget-${number}`, class: "budget", min: 0, max: Math.ceil(end / step) * step, step, value: Math.ceil(end / step) * step,
    on: { input: () => {
      budget = Math.min(end, Number(slider.value)); // the last step may reach beyond the end
      slider.setAttribute("aria-valuetext", `${count(budget)} new tokens: ${plan.languages.slice(0, MANY).map((l) => `${l.name} ${times(planValue(l, budget))}`).join(", ")}`);
      update();
    } },
  });
  update();
  const check = plan.check.pieces
    ? `${count(plan.check.pieces)} pieces of text encoded both ways, ${count(plan.check.longer)} got longer. `
    : "";
  return el(
    "article",
    { class: "plan" },
    el("h3", {}, `${page.plans.length > 1 ? `${plan.name}: ` : ""}${counted(plan.count, "token")} for ${plan.languages.length > MANY ? counted(plan.languages.length, "language") : listed(plan.languages.map((l) => l.name))}${plan.label ? ` in ${plan.label}` : ""}`),
    el("div", { class: "slider" }, el("label", { for: `budget-${number}` }, "How many tokens to add"), slider, shown),
    el("p", { class: "measure" }, `${planMeasure(plan)}, before → with that many tokens${otherPivot(plan)}`),
    list,
    plan.languages.some((l) => planLost(plan, l, 0, false) || planLost(plan, l, end, true))
      ? el("p", { class: "status" }, `† More than ${percent(plan.unkLimit)} of the characters of the test text are UNK: they were lost, not encoded, so this is no honest premium.`)
      : null,
    plot,
    plan.languages.some((l) => l.first_token) ? whoGains(plan) : null,
    el("h4", {}, "The first tokens it adds"),
    tokens,
    el("p", { class: "status" }, `${check}Mode ${plan.mode}, objective ${plan.objective}${planCuts(plan)}. ${plan.notes.map((note) => note.replace(/\.?$/, ".")).join(" ")}`),
  );
}

// Added merges never make a text longer if words are cut as before; turning UNK into text may.
const onlyShortens = (plan) => Boolean(plan.check.pieces) && !plan.check.longer && !plan.relaxed.length;

sections.push({
  id: "plan",
  name: "Plan",
  needs: () => page.plans.length > 0,
  draw(host) {
    draw(
      host,
      heading("plan", "What new tokens would buy", (page.plans.every(onlyShortens) ? "Tokens added at the end of a vocabulary can only shorten text. " : "") + "Move the slider to see what premium a number of new tokens buys."),
      drawFrontier(page.plans),
      page.plans.map(drawPlan),
    );
  },
});
