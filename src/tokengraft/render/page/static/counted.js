// Text that is not parallel: what each language's own text costs, tokenizer by tokenizer.

function countedTable(run) {
  const all = run.rows.flatMap((row) => row.values).filter((v) => v !== null);
  const top = Math.max(0.01, ...all);
  return el(
    "table",
    { class: "square", "aria-label": `Tokens per byte, ${run.title}` },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Language"), el("th", { scope: "col" }, "Rows"), run.tokenizers.map((label) => el("th", { scope: "col" }, el("span", {}, label))))),
    el("tbody", {}, run.rows.map((row) =>
      el("tr", {}, el("th", { scope: "row" }, row.name), el("td", {}, count(row.n)), row.values.map((v, t) =>
        v === null || row.bad[t] === "1"
          ? el("td", { class: "none" }, v === null ? "–" : `${v.toFixed(3)}†`)
          : el("td", { class: shareClass(v / top) }, v.toFixed(3)))))),
  );
}

sections.push({
  id: "counted",
  name: "Counted text",
  needs: () => page.counted.length > 0,
  draw(host) {
    draw(
      host,
      heading("counted", "Tokens per byte of text", "These texts say different things in each language, so there is no premium: a row compares tokenizers on one language; a column compares languages only roughly, since scripts differ in bytes for the same content. † marks text that was in part thrown away (UNK)."),
      page.counted.map((run) => [
        el("h3", {}, run.title),
        el("div", { class: "scroller plain", role: "region", "aria-label": run.title, tabindex: "0" }, countedTable(run)),
        run.left ? el("p", { class: "status" }, run.left) : null,
        el("p", { class: "downloads" }, run.downloads.map(downloadButton)),
      ]),
    );
  },
});
