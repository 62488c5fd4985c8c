// Cost: what the premiums mean in money and context, model by model.

const COST_ROWS = 24;

// The most spoken language of each script, and the languages asked for, costliest first.
function costPlaces(model, costliest) {
  const sums = (n) => audit().cells.sums[model.tokenizer][n];
  const usable = languages().map((_, n) => n).filter((n) => n !== audit().pivot && sums(n) && !isBad(model.tokenizer, n));
  usable.sort((a, b) => sums(b) - sums(a));
  if (costliest) return usable.slice(0, COST_ROWS);
  const seen = new Set();
  return [...usable]
    .sort((a, b) => languages()[b].readers - languages()[a].readers)
    .filter((n) => languages()[n].readers > 0 && !seen.has(languages()[n].script) && seen.add(languages()[n].script))
    .slice(0, COST_ROWS)
    .sort((a, b) => sums(b) - sums(a));
}

function paintCost(host, model, costliest) {
  const c = audit().cells;
  const places = costPlaces(model, costliest);
  const most = Math.max(1, ...places.map((n) => c.sums[model.tokenizer][n]));
  const rows = [audit().pivot, ...places].map((n) => {
    const ratio = c.sums[model.tokenizer][n];
    const context = count(Number((model.context / ratio).toPrecision(3)));
    const price = model.input === null ? times(ratio) : money(ratio);
    const dollars = model.input === null ? "" : `; ${money(model.input * ratio)} to read and ${money(model.output * ratio)} to write what is a million tokens in ${pivot().name}`;
    return bar(languages()[n].name, [[n === audit().pivot ? "base" : premiumClass(ratio), ratio / most]], price, {
      role: "img", tabindex: "0", "aria-label": `${languages()[n].name}: ${price}, context worth ${context} tokens${dollars}`,
      "data-words": `Context worth ${context} ${pivot().name} tokens of ${count(model.context)}${dollars}`, "data-name": languages()[n].name,
    });
  });
  draw(host, rows);
}

sections.push({
  id: "cost",
  name: "Cost",
  needs: () => page.audits.length > 0 && Boolean(audit().cost?.models.length),
  draw(host) {
    const { asOf, stale } = audit().cost;
    // If any model has a price, show only those, in dollars; else show all, by their ratio of tokens.
    const priced = audit().cost.models.filter((m) => m.input !== null);
    const models = priced.length ? priced : audit().cost.models;
    let [at, costliest] = [Math.max(0, models.findIndex((m) => m.model === "GPT-4o")), false];
    const box = el("figure", { class: "bars" });
    const caption = el("p", { class: "status" });
    const paint = () => {
      const model = models[at];
      paintCost(box, model, costliest);
      caption.textContent = `${model.model}: ${model.source}. Price list of ${asOf}${stale ? `, ${stale}` : ""}. Cost follows the ratio of sums: all tokens of the text over all tokens in ${pivot().name}. Premiums elsewhere on the page are means of ratios.`;
    };
    draw(
      host,
      heading("cost", priced.length ? `What a dollar’s worth of ${pivot().name} costs` : `What the same content costs`, `${priced.length ? "The price of the same content" : `How many times as many tokens the same content takes as in ${pivot().name}`}, language by language. The longer the bar, the less fits into the context window, by the same factor.`),
      el(
        "div",
        { class: "controls" },
        choice("Model", models.map((m, i) => [i, m.model]), at, (v) => {
          at = Number(v);
          paint();
        }, { id: "cost-model" }),
        choice("Languages", [["spoken", "most spoken of each script"], ["costly", "costliest"]], "spoken", (v) => {
          costliest = v === "costly";
          paint();
        }, { id: "cost-languages" }),
      ),
      box,
      caption,
      downloads("cost"),
    );
    tipped(box, ".bar", (row) => [el("strong", {}, row.dataset.name), row.dataset.words]);
    paint();
  },
});
