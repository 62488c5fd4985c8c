// Your language: what the numbers mean for one language, in plain words.

const PAGE_CHARACTERS = 3000; // a page of pivot text

// Tokenizers that can write the language, cheapest first.
function ranked(n) {
  return audit().tokenizers
    .map((k, t) => ({ label: k.label, t, premium: honest(t, n) }))
    .filter((r) => r.premium !== null)
    .sort((a, b) => a.premium - b.premium);
}

// The one to lead with: of the tokenizers that can write the language, the one used most today.
const leading = (order) => audit().byUse.map((t) => order.find((r) => r.t === t)).find(Boolean);

// “9.5 to 18.3 times”, over the tokenizers that can write the language; "" if only one can.
const rangeWords = (order) =>
  order.length > 1 ? `${plain(order[0].premium)} to ${plain(order.at(-1).premium)} times` : "";

const pageTokens = (t, n) =>
  PAGE_CHARACTERS * audit().perCharacter[t][audit().pivot] * audit().cells.sums[t][n];

// Why a language has no premium: no text in common with the pivot, or text that every tokenizer loses.
function whyNone(n) {
  const [entry, lost] = [languages()[n], audit().tokenizers.map((_, t) => loses(t, n))];
  if (!entry.n) return `This run has no lines in both ${entry.name} and ${pivot().name}`;
  const whose = lost.every(Boolean) ? entry.name : lost.some(Boolean) ? `both ${entry.name} and ${pivot().name}` : pivot().name;
  return `No tokenizer of this run writes all of ${whose}`;
}

function languageFacts(n) {
  const entry = languages()[n];
  const order = ranked(n);
  const facts = [];
  if (!order.length) {
    return [el("p", { class: "fact" }, `${whyNone(n)}, so there is no premium.`), ...(entry.n ? lostFacts(n) : [])];
  }
  const [best, worst] = [order[0], order.at(-1)];
  const own = n === audit().pivot;
  const pages = (r) => `${count(Number(pageTokens(r.t, n).toPrecision(3)))} tokens on ${r.label}`;
  facts.push(
    fact(
      "A page of text",
      own
        ? `${pages(best)}. All other languages are measured against this.`
        : `What fills a page in ${pivot().name} takes, in ${entry.name}, ${pages(best)}${best === worst ? "" : ` and ${pages(worst)}`}; in ${pivot().name} itself ${count(Number(pageTokens(best.t, audit().pivot).toPrecision(3)))}${best === worst ? "" : ` and ${count(Number(pageTokens(worst.t, audit().pivot).toPrecision(3)))}`}.`,
    ),
  );
  if (order.length > 1 && !own) {
    facts.push(fact("Best served by", `${best.label}, at ${times(best.premium)} ${pivot().name}. Worst by ${worst.label}, at ${times(worst.premium)}.`));
  }
  facts.push(fewestFact(order, n));
  const models = audit().cost?.models.filter((m) => !isBad(m.tokenizer, n) && audit().cells.sums[m.tokenizer][n]) ?? [];
  if (models.length && !own) facts.push(contextFact(models, n), moneyFact(models, n));
  return [...facts, ...lostFacts(n)];
}

// The tokenizer that takes the fewest tokens may have a higher premium: the pivot gained more.
function fewestFact(order, n) {
  const known = order.filter((r) => perUnit(r.t, n) !== null);
  if (n === audit().pivot || known.length < 2) return null;
  const fewest = known.reduce((a, b) => (perUnit(b.t, n) < perUnit(a.t, n) ? b : a));
  const least = known[0];
  if (fewest === least || exact(fewest.premium) === exact(least.premium)) return null;
  return fact(
    "Fewest tokens",
    `${fewest.label}, ${few(perUnit(fewest.t, n))} per passage where ${least.label} takes ${few(perUnit(least.t, n))}, though its premium is higher (${times(fewest.premium)} against ${times(least.premium)}): ${pivot().name} gained more from it than ${languages()[n].name} did.`,
  );
}

// Tokenizers that lose part of the language to UNK and, separately, those that lose most of it.
function lostFacts(n) {
  const lost = audit().tokenizers.map((k, t) => ({ label: k.label, t, share: unkPercent(audit().cells.unk[t][n]) })).filter((r) => loses(r.t, n));
  const [gone, part] = [lost.filter((r) => isGone(r.t, n)), lost.filter((r) => !isGone(r.t, n))];
  return [
    part.length
      ? fact("Partly lost by", `${listed(part.map((r, i) => `${r.label} (${r.share}${i ? "" : " of the tokens are UNK"})`))}: what UNK stands for never reaches the model, so the count says too little.`)
      : null,
    gone.length
      ? fact("Not written by", `${listed(gone.map((r) => r.label))}: most of the text becomes UNK and never reaches the model.`)
      : null,
  ];
}

const fact = (name, ...words) => el("div", { class: "fact" }, el("h3", {}, name), el("p", {}, ...words));

// Small numbers of pages to one decimal: a third of a page must not show as 0.
const pageCount = (v) => (v < 9.95 ? plain(v) : count(v));

function contextFact(models, n) {
  const big = [...models].sort((a, b) => b.context - a.context)[0];
  const per = (place) => pageCount(big.context / pageTokens(big.tokenizer, place));
  return fact(
    "Context left",
    `${big.model} reads ${count(big.context)} tokens at a time: ${per(audit().pivot)} pages in ${pivot().name}, ${per(n)} in ${languages()[n].name}.`,
  );
}

function moneyFact(models, n) {
  const priced = models.filter((m) => m.input !== null);
  if (!priced.length) return null;
  const byTokenizer = new Map();
  for (const m of priced) byTokenizer.set(m.tokenizer, [...(byTokenizer.get(m.tokenizer) ?? []), m]);
  const words = [...byTokenizer].map(([t, own]) => `${money(audit().cells.sums[t][n])} on ${listed(own.map((m) => m.model))}`);
  return fact("Reading what costs $1 in " + pivot().name, `${words.join("; ")} (price list of ${audit().cost.asOf}).`);
}

function languageBars(n) {
  if (!languages()[n].n) return null;
  const c = audit().cells;
  const rows = audit().tokenizers.map((k, t) => ({ k, t, premium: c.premium[t][n], bad: isBad(t, n) }));
  const most = Math.max(1, ...rows.filter((r) => !r.bad).map((r) => r.premium ?? 0));
  const bars = rows.map(({ k, t, premium, bad }) => {
    const parts = bad
      ? [["unk", Math.min(1, premium / most)]]
      : [["floor", (c.floor[t][n] ?? 0) / most], ["longer", c.longer[t][n] / most], ["split", c.characters[t][n] / most]];
    const beside = absolutes(t, n);
    const said = [bad ? `no premium, ${loses(t, n) ? `${unkPercent(c.unk[t][n])} UNK` : `${pivot().name} lost to UNK`}` : times(premium), ...beside].join(", ");
    const row = bar(k.label, parts, bad ? "UNK" : times(premium), { tabindex: "0", "data-t": t, role: "img", "aria-label": `${k.label}: ${said}` });
    if (beside.length) row.append(el("div", { class: "bar-beside" }, beside.join(" · ")));
    return row;
  });
  const box = el(
    "figure",
    { class: "bars" },
    el("figcaption", {}, "Where the premium comes from"),
    bars,
    el(
      "ul",
      { class: "groups" },
      [["floor", "forced by how words are cut"], ["longer", "longer tokens missing"], ["split", "characters split into bytes"]].map(([look, text]) =>
        el("li", {}, el("i", { class: look }), text)),
    ),
  );
  tipped(box, ".bar", (row) => aboutCell(Number(row.dataset.t), n));
  return box;
}

// Characters that a vocabulary lacks as one token.
function missingCharacters(n) {
  const cover = audit().coverage;
  if (!cover) return null;
  const entry = languages()[n];
  const holder = el("div", { class: "missing" });
  const order = audit().tokenizers.map((k, t) => [t, k.label]);
  let t = defaultTokenizer();
  const paint = () => {
    const [all, have] = [cover.characters[t][n] ?? 0, cover.covered[t][n] ?? 0];
    const missing = [...cover.missing[t][n]];
    const words = all === have
      ? `All ${all} characters of the text are one token in ${audit().tokenizers[t].label}.`
      : `${all - have === all ? `None of the ${all} characters is` : `${all - have} of ${all} characters are not`} one token in ${audit().tokenizers[t].label}${all - have === all ? "." : `; ${percent(cover.running[t][n])} of running text is written with the others.`}${all - have > missing.length ? ` The ${missing.length} most frequent:` : ""}`;
    draw(
      holder,
      el("p", {}, words),
      el("ul", { class: "glyphs" }, missing.map((c) => el("li", { title: codePoint(c) }, written(visible(c), entry)))),
    );
  };
  paint();
  return el(
    "div",
    { class: "fact wide" },
    el("h3", {}, "Characters missing"),
    choice("in the vocabulary of", order, t, (value) => {
      t = Number(value);
      paint();
    }, { id: "missing-tokenizer" }),
    holder,
  );
}

const MARK = /^\p{M}/u;

// A character on its own: marks on a dotted circle, invisible ones as U+….
function visible(c) {
  if (MARK.test(c)) return `◌${c}`;
  return /^[\p{C}\p{Z}]$/u.test(c) ? codePoint(c) : c;
}

// An input that suggests languages; `react` gets the code of the one chosen.
function languagePicker(id, label, react) {
  const called = (e) => [e.name, e.autonym, e.code, ...(e.also ?? [])].filter(Boolean).map(folded);
  const names = languages().map((e) => [e, called(e)]);
  // Those called exactly so, else those whose name begins so, else those with that word in it.
  const meant = (wanted) => [
    (key) => key === wanted || key.split("_")[0] === wanted,
    (key) => key.startsWith(wanted),
    (key) => key.split(/[^\p{L}]+/u).includes(wanted),
  ].map((fits) => names.filter(([, keys]) => keys.some(fits)).map(([e]) => e)).find((found) => found.length) ?? [];
  const input = el("input", {
    type: "text", id, list: `${id}-list`, autocomplete: "off", spellcheck: "false",
    on: {
      focus: () => input.select(),
      change: () => {
        const wanted = folded(input.value.trim());
        const found = wanted ? meant(wanted).sort((a, b) => (b.speakers ?? 0) - (a.speakers ?? 0)) : [];
        const several = found.length > 1 && found[0].name !== input.value.trim();
        const said = several ? `${found.length} languages are called so; this is ${found[0].speakers ? "the most spoken" : "one of them"}. Others: ${listed(found.slice(1, 5).map((e) => e.name))}` : "";
        if (found.length) react(found[0].code);
        unknown.textContent = found.length ? said : `No language ${input.value}`;
        if (unknown.textContent) say(unknown.textContent);
      },
    },
  });
  const unknown = el("span", { class: "problem", "aria-hidden": "true" }); // `say` tells who does not see it
  const options = languages().map((e) => el("option", { value: e.name }, [e.autonym, e.code].filter(Boolean).join(" · ")));
  const field = el("label", { class: "field wide" }, el("span", {}, label), input, unknown, el("datalist", { id: `${id}-list` }, options));
  return { field, set: (code) => { unknown.textContent = ""; input.value = languages()[placeOf(code)]?.name ?? ""; } };
}

sections.push({
  id: "language",
  name: "Your language",
  needs: () => page.audits.length > 0,
  draw(host) {
    const card = el("div", { class: "card" });
    const picker = languagePicker("pick", "Language, by any of its names", (code) => chooseLanguage(code));
    const paint = (code) => {
      const n = placeOf(code);
      if (n < 0) return;
      const entry = languages()[n];
      picker.set(code);
      const own = entry.autonym && entry.autonym !== entry.name;
      draw(
        card,
        el(
          "header",
          { class: "card-head" },
          own ? written(entry.autonym, entry, { class: "card-own" }, "p") : null,
          el("p", { class: "card-name" }, entry.name),
          el("p", { class: "card-about" }, [entry.code, `${entry.scriptName} script`, entry.family, peopleWords(entry.speakers)].filter(Boolean).join(" · ")),
        ),
        el("div", { class: "facts" }, languageFacts(n)),
        languageBars(n),
        missingCharacters(n),
        shareButtons("language", () => pictureOfLanguage(n), () => languageLink(code), page.live?.tokenizers && tag(code) ? el("a", { href: `lang/${encodeURIComponent(code)}/index.html` }, "its own page") : null),
      );
    };
    followers.push(paint);
    draw(
      host,
      heading("language", "Your language", "Pick one: what it pays, how much room is left, what is missing, and who serves it best."),
      el("div", { class: "controls" }, picker.field),
      card,
      downloads("coverage"),
    );
    paint(state.language);
  },
});
