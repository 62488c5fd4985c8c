// The top of the page: a finding, three figures, and one sentence counted in several languages.

function drawHero(host) {
  const a = audit();
  const lead = a.headline;
  draw(
    host,
    el(
      "p",
      { class: "kicker" },
      `${counted(a.tokenizers.length, "tokenizer")} · ${counted(a.languages.length, "language")} · ${a.title}, ${a.units}`,
    ),
    el("h1", {}, lead.title),
    el("p", { class: "lead" }, lead.lead),
    el(
      "ul",
      { class: "figures" },
      lead.figures.map((f) => el("li", {}, el("strong", {}, f.number), el("span", {}, f.words))),
    ),
    a.same ? sameSentence(a.same) : null,
  );
}

// The sentence's ratio differs from the headline's, which is a mean over all text: say so.
function sameRatio(same, most) {
  const base = same.counts.find(([code]) => code === pivot().code);
  if (!base?.[1] || base[1] === most) return "";
  const [worst] = same.counts.find(([, n]) => n === most);
  const name = languages()[placeOf(worst)].name;
  return ` In this one sentence${same.elsewhere ? ` (from the ${same.elsewhere}, not from the text measured)` : ""} ${name} takes ${(most / base[1]).toFixed(1)} times the tokens of ${pivot().name}; the figures above are means over all of the text.`;
}

function sameSentence(same) {
  const most = Math.max(...same.counts.map(([, n]) => n));
  const rows = same.counts.map(([code, n]) => {
    const entry = languages()[placeOf(code)];
    const name = el("span", { class: "same-name" }, entry.name);
    return el(
      "li",
      { class: n === most ? "most" : null },
      el("div", { class: "same-label" }, name, ownName(entry)),
      el("div", { class: "same-count" }, el("strong", {}, count(n)), n === 1 ? " token" : " tokens"),
      el("div", { class: "same-dots", "aria-hidden": "true" }, Array.from({ length: n }, () => el("i"))),
    );
  });
  return el(
    "figure",
    { class: "same" },
    el(
      "figcaption",
      {},
      el("strong", {}, "“", tamed(same.text), "”"),
      ` One square is one token of ${same.label}.${sameRatio(same, most)}`,
    ),
    el("ul", {}, rows),
  );
}
