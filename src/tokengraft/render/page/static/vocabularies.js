// Vocabularies: how alike they are, and what they are made of.

function square(name, caption, matrix, words) {
  const { labels, values } = matrix;
  const top = Math.max(0.01, ...values.flatMap((row, i) => row.filter((_, j) => j !== i)));
  const table = el(
    "table",
    { class: "square", style: { "--columns": labels.length }, "aria-label": `${name}: ${caption}` },
    el("thead", {}, el("tr", {}, el("td"), labels.map((l) => el("th", { scope: "col" }, el("span", {}, l))))),
    el("tbody", {}, values.map((row, i) =>
      el("tr", {}, el("th", { scope: "row" }, labels[i]), row.map((v, j) =>
        i === j
          ? el("td", { class: "none" }, "–")
          : el("td", { class: shareClass(v / top), "data-i": i, "data-j": j }, percent(v).replace("%", "")))))),
  );
  tipped(table, "td[data-i]", (cell) => {
    const [i, j] = [cell.dataset.i, cell.dataset.j];
    return [el("strong", {}, `${labels[i]} · ${labels[j]}`), words(percent(values[i][j]), labels[i], labels[j])];
  });
  return el(
    "div",
    { class: "square-box" },
    el("p", {}, el("strong", {}, name), caption),
    el("div", { class: "scroller plain", role: "region", "aria-label": name, tabindex: "0" }, table),
  );
}

// A single vocabulary has nothing to be compared with.
const several = (matrix) => matrix && matrix.labels.length > 1;

// Stacked bars of shares; `keys` are [column, text].
function breakdown(title, rows, keys) {
  const bars = rows.map((row) => {
    const total = keys.reduce((sum, [key]) => sum + (row[key] ?? 0), 0) || 1;
    const words = keys.map(([key, text]) => `${text} ${percent(row[key] / total)}`).join(", ");
    return bar(row.label, keys.map(([key], i) => [`s${i}`, row[key] / total]), count(total), { role: "img", tabindex: "0", "aria-label": `${row.label}: ${words}`, "data-words": words });
  });
  const box = el(
    "figure",
    { class: "bars" },
    el("figcaption", {}, title),
    el("ul", { class: "groups" }, keys.map(([, text], i) => el("li", {}, el("i", { class: `s${i}` }), text))),
    bars,
  );
  tipped(box, ".bar", (row) => [row.dataset.words]);
  return box;
}

sections.push({
  id: "vocabularies",
  name: "Vocabularies",
  needs: () => page.audits.length > 0 && audit().vocabulary.length > 0,
  draw(host) {
    const a = audit();
    const lengths = [1, 2, 3, 4, 5, 6, 7].map((n) => [`toks_${n}b`, `${n}`]);
    draw(
      host,
      heading("vocabularies", "What the vocabularies hold", several(a.jaccard)
        ? "Every vocabulary has a fixed number of entries. This is how much each pair has in common, and what they spend their entries on."
        : "A vocabulary has a fixed number of entries. This is what they are spent on."),
      el(
        "div",
        { class: "pair" },
        several(a.jaccard) ? square("Overlap", "entries two vocabularies share, in percent of all entries of both", a.jaccard, (v, one, other) => `${v} of the entries of ${one} and ${other} together are in both`) : null,
        several(a.containment) ? square("Containment", "percent of the row’s entries that the column has too", a.containment, (v, one, other) => `${other} has ${v} of ${one}’s entries`) : null,
      ),
      el(
        "div",
        { class: "pair" },
        a.vocabulary.length ? breakdown("Tokens by length in bytes", a.vocabulary, [...lengths, ["toks_gt7b", "8 and more"]]) : null,
        a.vocabulary.length ? breakdown("Distinct characters by bytes in UTF-8", a.vocabulary, [["chars_1b", "1 (ASCII)"], ["chars_2b", "2 (Greek, Arabic …)"], ["chars_3b", "3 (Indic, CJK …)"], ["chars_4b", "4 (Adlam, emoji …)"]]) : null,
      ),
      downloads("vocabulary", "jaccard", "containment"),
    );
  },
});
