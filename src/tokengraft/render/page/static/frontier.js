// Frontier: how equal languages are against the number of new tokens, a line per plan.

const MANY = 24; // languages with a name beside their line

const gini = (sorted) => {
  const sum = sorted.reduce((all, v) => all + v, 0);
  return sum ? sorted.reduce((all, v, i) => all + (2 * i + 1 - sorted.length) * v, 0) / (sorted.length * sum) : 0;
};

const FRONTIER = [
  ["Highest premium", (sorted) => sorted.at(-1), times],
  ["Median premium", median, times],
  ["Gini coefficient", gini, (v) => v.toFixed(3)],
  ["Languages above 2×", (sorted) => sorted.filter((v) => v > 2).length, count],
];

// [tokens, sorted premiums] at every number of tokens at which all languages were measured.
function spreads(plan) {
  const curves = plan.languages.filter((l) => l.curve.length && l.curve.every((p) => p[1] !== null)).map((l) => new Map(l.curve.map((p) => [p[0], p[1]])));
  if (curves.length < 2) return [];
  const sizes = [...curves[0].keys()].filter((n) => curves.every((curve) => curve.has(n)));
  return sizes.map((n) => [n, curves.map((curve) => curve.get(n)).sort((a, b) => a - b)]);
}

function frontierPanel([title, figure, form], lines) {
  const [width, height, left, right, top, bottom] = [300, 190, 8, 8, 14, 22];
  const drawn = lines.map((line) => line.points.map(([n, sorted]) => [n, figure(sorted)]));
  const end = Math.max(1, ...drawn.flat().map((p) => p[0]));
  const most = Math.max(...drawn.flat().map((p) => p[1])) || 1;
  const x = (n) => left + ((width - left - right) * n) / end;
  const y = (v) => height - bottom - ((height - top - bottom) * v) / (most * 1.05);
  const middle = form === count ? Math.floor(most / 2) : most / 2;
  const parts = [...new Set([0, middle, most])].map((v) => [
    shape("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "rule" }),
    shape("text", { x: width - right, y: y(v) - 3, class: "tick end" }, form(v)),
  ]);
  if (most > 2 && form === times) parts.push(shape("line", { x1: left, x2: width - right, y1: y(2), y2: y(2), class: "rule one" }));
  drawn.forEach((points, i) => {
    parts.push(shape("polyline", { points: points.map(([n, v]) => `${x(n).toFixed(1)},${y(v).toFixed(1)}`).join(" "), class: `curve ${lineClass(i)}` }));
  });
  parts.push(shape("text", { x: left, y: height - 4, class: "tick" }, "0"));
  parts.push(shape("text", { x: width - right, y: height - 4, class: "tick end" }, `${count(end)} tokens`));
  const ends = drawn.map((points, i) => [lines[i].name, form(points[0][1]), "→", form(points.at(-1)[1])].filter(Boolean).join(" "));
  return el(
    "figure",
    { class: "panel" },
    el("figcaption", {}, el("strong", {}, title), ends.map((end, i) => el("div", { class: lineClass(i) }, end))),
    shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title} by number of new tokens: ${ends.join(", ")}` }, parts),
  );
}

// One set of panels for all plans of one tokenizer; nothing unless a plan has several languages.
function drawFrontier(plans) {
  const lines = plans.map((plan) => ({ plan, points: spreads(plan) })).filter((line) => line.points.length > 1);
  if (!lines.length) return null;
  const objectives = new Set(lines.map((line) => line.plan.objective));
  for (const line of lines) line.name = lines.length === 1 ? "" : objectives.size === lines.length ? line.plan.objective : line.plan.name;
  const pivots = new Set(lines.map((line) => line.plan.pivotName));
  const twice = pivots.size === 1 && [...pivots][0] ? `what ${[...pivots][0]} does` : "the pivot";
  const many = Math.max(...lines.map((line) => line.plan.languages.length));
  return el(
    "article",
    { class: "plan" },
    el("h3", {}, `How even ${count(many)} languages become`),
    el("p", { class: "measure" }, `The costliest language, the typical one, how unequal all of them are (a Gini coefficient of 0: all pay the same) and how many pay more than twice ${twice}, by the number of tokens added.`),
    el("div", { class: "panels" }, FRONTIER.map((panel) => frontierPanel(panel, lines))),
  );
}

// Who gains: every language's premium before and after the whole plan, and from which token on.
function whoGains(plan) {
  const rows = [...plan.languages].sort((a, b) => (b.premium_before ?? 0) - (a.premium_before ?? 0));
  return el(
    "details",
    {},
    el("summary", {}, `Who gains, and from which token on (${counted(rows.length, "language")})`),
    el(
      "div",
      { class: "scroller plain", role: "region", "aria-label": "Who gains", tabindex: "0" },
      el(
        "table",
        { class: "costs" },
        el("thead", {}, el("tr", {}, ["Language", "Before", "After", "Helped from token"].map((h) => el("th", { scope: "col" }, h)))),
        el("tbody", {}, rows.map((l) => el(
          "tr",
          {},
          el("th", { scope: "row" }, l.name),
          el("td", {}, exact(l.premium_before)),
          el("td", {}, exact(l.premium_after)),
          el("td", {}, l.first_token ? count(l.first_token) : "never"),
        ))),
      ),
    ),
  );
}
