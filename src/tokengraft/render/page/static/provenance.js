// Provenance: what the run was made of, and every table it wrote.

function hashes(title, entries) {
  return el(
    "details",
    {},
    el("summary", {}, title),
    el("div", { class: "scroller plain", role: "region", "aria-label": title, tabindex: "0" },
      el("table", { class: "hashes" }, el("tbody", {}, entries.map(([name, about, hash]) =>
        el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, about ?? ""), el("td", {}, el("code", {}, hash ?? ""))))))),
  );
}

const pairs = (object) => Object.entries(object ?? {}).map(([k, v]) => [el("dt", {}, k), el("dd", {}, String(v))]);

function auditProvenance(a) {
  const m = a.manifest;
  const tokenizers = Object.values(m.tokenizers).map((t) => [t.label, t.from, t.sha256]);
  return [
    el(
      "dl",
      { class: "facts-list" },
      pairs({
        "Text": a.title,
        "Passages": count(m.corpus.units ?? 0),
        "Pivot": `${pivot().name} (${m.pivot})`,
        "Intervals": m.bootstrap ? `${m.bootstrap.method} bootstrap, ${count(m.bootstrap.resamples)} resamples, ${100 * m.bootstrap.confidence}%` : "none",
        "Made with": [`tokengraft ${m.tokengraft}`, ...Object.entries(m.libraries ?? {}).map(([k, v]) => `${k} ${v}`)].join(", "),
      }),
      Object.keys(m.skipped ?? {}).length ? [el("dt", {}, "Left out"), el("dd", {}, Object.keys(m.skipped).join(", "))] : null,
    ),
    hashes(`SHA-256 of ${counted(tokenizers.length, "tokenizer")}`, tokenizers),
    hashes(`SHA-256 of the text in ${counted(Object.keys(m.corpus.languages).length, "language")}`, Object.entries(m.corpus.languages).map(([code, hash]) => [code, languages()[placeOf(code)]?.name, hash])),
    el("h3", {}, "Every table of the run"),
    el("p", { class: "downloads" }, a.downloads.map(downloadButton)),
  ];
}

sections.push({
  id: "provenance",
  name: "Provenance",
  needs: () => true,
  draw(host) {
    draw(
      host,
      heading("provenance", "Where the numbers come from", "The page holds the run’s own files; what you download is byte for byte what the run wrote."),
      page.audits.length ? auditProvenance(audit()) : null,
      page.grafts.map((g) => [
        el("h3", {}, `The graft “${g.name}”`),
        g.command ? el("p", {}, el("code", { class: "command" }, g.command)) : null,
        el("dl", { class: "facts-list" }, pairs({ Seed: g.seed, Plan: g.plan, ...g.versions })),
        hashes(`SHA-256 of ${Object.keys(g.files).length} files`, Object.entries(g.files).map(([name, hash]) => [name, "", hash])),
      ]),
    );
  },
});
