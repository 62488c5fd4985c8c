// Compared: tokens that the same text takes on two sides, language by language.

const ORDERS = {
  gained: ["most gained first", (a, b) => (a.change ?? 9) - (b.change ?? 9)],
  lost: ["most lost first", (a, b) => (b.change ?? -9) - (a.change ?? -9)],
  spoken: ["most spoken first", (a, b) => (b.speakers ?? -1) - (a.speakers ?? -1)],
  name: ["by name", (a, b) => a.name.localeCompare(b.name)],
};
const CHANGE_WORDS = { lost: "now UNK", regained: "was UNK", neither: "UNK" };
// “−31.2%”, “+0.03%” where one decimal would show none, “±0%” where nothing changed.
function signed(change) {
  if (!change) return "±0%";
  const size = Math.abs(100 * change);
  return `${change > 0 ? "+" : "−"}${size < 0.05 ? Number(size.toPrecision(1)) : size.toFixed(1)}%`;
}

function comparedRow(row) {
  const look = row.outcome === "better" ? "gain" : row.outcome === "same" ? "" : "loss";
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, row.name),
    el("td", {}, count(row.tokens[0])),
    el("td", {}, count(row.tokens[1])),
    el("td", { class: row.outcome === "regained" ? "gain" : look }, row.change === null ? CHANGE_WORDS[row.outcome] : signed(row.change)),
    row.premiums.map((v, i) => el("td", { class: row.bad[i] ? "none" : null }, row.bad[i] ? "UNK" : times(v))),
    row.covered.map((v) => el("td", {}, v === null ? "–" : percent(v))),
    el("td", {}, people(row.speakers)),
  );
}

function comparedTable(pair, order) {
  const heads = ["Language", `Tokens, ${pair.a}`, `Tokens, ${pair.b}`, "Change", `Premium, ${pair.a}`, `Premium, ${pair.b}`, `Characters known, ${pair.a}`, `Characters known, ${pair.b}`, "Speakers"];
  return el(
    "table",
    { class: "compared", "aria-label": `${pair.a} and ${pair.b}, language by language` },
    el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, [...pair.rows].sort(ORDERS[order][1]).map(comparedRow)),
  );
}

sections.push({
  id: "compare",
  name: "Compared",
  needs: () => page.comparisons.length > 0,
  draw(host) {
    const every = page.comparisons.flatMap((run) => run.pairs.map((pair) => ({ ...pair, run })));
    let [at, order] = [0, "gained"];
    const words = el("ul", { class: "findings" });
    const box = el("div", { class: "scroller", role: "region", "aria-label": "Languages compared", tabindex: "0" });
    const caption = el("p", { class: "status" });
    const paint = () => {
      const pair = every[at];
      draw(words, pair.words.map((text) => el("li", {}, text)));
      draw(box, comparedTable(pair, order));
      caption.textContent = `Text: ${pair.run.corpus}. Better and worse are judged by tokens for the same text. Speakers are counted by language, so a speaker of two counts twice.`;
    };
    draw(
      host,
      heading("compare", every.length === 1 ? `${every[0].a} → ${every[0].b}` : "Side by side", "The same text, counted twice: what got better, what got worse."),
      words,
      el(
        "div",
        { class: "controls" },
        every.length > 1
          ? choice("Compared", every.map((pair, i) => [i, `${pair.a} → ${pair.b}`]), at, (v) => {
              at = Number(v);
              paint();
            }, { id: "compare-pair" })
          : null,
        choice("Order", Object.entries(ORDERS).map(([key, [text]]) => [key, text]), order, (v) => {
          order = v;
          paint();
        }, { id: "compare-order" }),
      ),
      box,
      caption,
    );
    paint();
  },
});
