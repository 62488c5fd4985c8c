// Premiums: languages × tokenizers as a heat map that can be sorted, searched and filtered.

const MEASURES = {
  premium: { name: "Premium", look: premiumClass, form: plain },
  sums: { name: "Premium by total length", look: premiumClass, form: plain },
  floor: { name: "Floor: forced by word cuts", look: premiumClass, form: plain },
  perUnit: { name: "Tokens per passage", look: (v) => premiumClass(v / perUnit(reference(), audit().pivot)), form: few },
  bytesPerToken: { name: "Bytes per token", look: (v) => shareClass(v / 6), form: plain },
  change: { name: "Change of tokens", look: (v) => premiumClass(1 + v), form: signedPercent },
  coverage: { name: "Text in one-token characters", look: shareClass, form: (v) => (100 * v).toFixed(0) },
};
const ABSOLUTE = new Set(["perUnit", "bytesPerToken", "change"]);
const hasAbsolute = () => audit().cells.perUnit.some((row) => row.some((v) => v !== null));
const SPEAKERS = [
  ["0", "any"], ["100000000", "100 million or more"], ["10000000", "10 million or more"],
  ["1000000", "1 million or more"], ["-1000000", "under 1 million"],
];

function measured(name, t, n) {
  const a = audit();
  if (name === "coverage") return a.coverage ? a.coverage.running[t][n] : null;
  if (name === "change") return change(t, n);
  return a.cells[name][t][n];
}

class PremiumTable {
  constructor() {
    this.measure = "premium";
    this.sort = { key: "typical", up: false };
    this.query = "";
    this.filters = { script: "", family: "", speakers: "0" };
    const a = audit();
    this.rows = a.languages.map((entry, n) => ({
      n,
      entry,
      typical: median(a.tokenizers.map((_, t) => honest(t, n))),
      words: folded([entry.name, entry.autonym ?? "", ...(entry.also ?? []), entry.code, entry.scriptName, entry.family ?? ""].join(" ")),
      node: null,
    }));
    this.body = el("tbody", { role: "rowgroup" });
    this.heads = new Map();
    this.table = this.makeTable();
    this.status = el("p", { class: "status", role: "status" });
    this.refill();
    this.arrange();
  }

  makeTable() {
    const a = audit();
    const head = (key, text, look, title = null) => {
      const button = el("button", { type: "button", title, on: { click: () => this.sortBy(key) } }, text);
      const cell = el("th", { scope: "col", role: "columnheader", class: look }, button);
      this.heads.set(key, cell);
      return cell;
    };
    const columns = [
      head("name", "Language", "c-name"),
      head("script", "Script", "c-script"),
      head("speakers", "Speakers", "c-speakers"),
      head("typical", "Median", "c-cell", "Median over the tokenizers, UNK cells left out"),
      ...a.tokenizers.map((t, i) => head(`t${i}`, t.label, "c-cell")),
    ];
    for (const row of this.rows) row.node = this.makeRow(row);
    const table = el(
      "table",
      { class: "heat", role: "grid", style: { "--columns": a.tokenizers.length + 1 }, "aria-label": `Premiums over ${pivot().name}`, "aria-rowcount": String(this.rows.length + 1) },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns)),
      this.body,
    );
    table.addEventListener("keydown", (event) => this.move(event));
    tipped(table, "td[data-t]", (cell) => aboutCell(Number(cell.dataset.t), Number(cell.dataset.n)));
    return table;
  }

  makeRow(row) {
    const { entry, n } = row;
    const link = el("a", { href: `#lang=${entry.code}`, tabindex: "-1" }, entry.name);
    row.cells = audit().tokenizers.map((_, t) =>
      el("td", { role: "gridcell", "data-t": t, "data-n": n, tabindex: "-1" }),
    );
    row.middle = el("td", { role: "gridcell", tabindex: "-1" });
    return el(
      "tr",
      { role: "row" },
      el("th", { scope: "row", role: "rowheader", class: "c-name" }, link, ownName(entry)),
      el("td", { role: "gridcell", class: "c-script" }, entry.scriptName),
      el("td", { role: "gridcell", class: "c-speakers" }, people(entry.speakers)),
      row.middle,
      row.cells,
    );
  }

  // Write the numbers of the chosen measure into the cells.
  refill() {
    const { look, form } = MEASURES[this.measure];
    for (const row of this.rows) {
      const values = row.cells.map((cell, t) => {
        const bad = (ABSOLUTE.has(this.measure) ? loses : isBad)(t, row.n) && this.measure !== "coverage";
        const value = measured(this.measure, t, row.n);
        cell.className = `c-cell ${bad ? "unk" : value === null ? "none" : look(value)}`;
        const shown = bad ? "UNK" : value === null ? "–" : form(value);
        draw(cell, shown, this.measure === "premium" && !bad && value !== null ? this.beside(t, row.n) : null);
        return bad ? null : value;
      });
      row.values = values;
      row.typical = median(values);
      row.middle.className = `c-cell ${row.typical === null ? "none" : look(row.typical)}`;
      row.middle.textContent = row.typical === null ? "–" : form(row.typical);
    }
  }

  // What the premium does not show, in small type: tokens per passage, and the change from the reference.
  beside(t, n) {
    if (perUnit(t, n) === null) return null;
    const more = t === reference() ? null : change(t, n);
    return el("small", {}, [few(perUnit(t, n)), more === null ? null : signedPercent(more)].filter(Boolean).join(" "));
  }

  sortBy(key) {
    const text = key === "name" || key === "script";
    this.sort = { key, up: this.sort.key === key ? !this.sort.up : text };
    this.arrange();
    say(`Sorted by ${this.heads.get(key).textContent}, ${this.sort.up ? "ascending" : "descending"}`);
  }

  // Put the rows that pass the filters into the body, in order.
  arrange() {
    const { key, up } = this.sort;
    const value = {
      name: (row) => row.entry.name,
      script: (row) => row.entry.scriptName,
      speakers: (row) => row.entry.speakers ?? null,
      typical: (row) => row.typical,
    }[key] ?? ((row) => row.values[Number(key.slice(1))]);
    const shown = this.rows.filter((row) => this.passes(row)).map((row) => [value(row), row]);
    const compare = new Intl.Collator("en").compare;
    shown.sort(([a, one], [b, other]) => {
      if (a === null || b === null) return (a === null) - (b === null) || one.n - other.n;
      const order = typeof a === "string" ? compare(a, b) : a - b;
      return (up ? order : -order) || one.n - other.n;
    });
    this.body.replaceChildren(...shown.map(([, row]) => row.node));
    for (const [name, cell] of this.heads) {
      if (name === key) cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    }
    this.table.querySelector('td[tabindex="0"]')?.setAttribute("tabindex", "-1");
    this.body.querySelector("td.c-cell")?.setAttribute("tabindex", "0");
    this.status.textContent = shown.length
      ? `${count(shown.length)} of ${counted(this.rows.length, "language")}`
      : "No language passes these filters.";
  }

  passes({ entry, words }) {
    const { script, family, speakers } = this.filters;
    const least = Number(speakers);
    if (script && entry.script !== script) return false;
    if (family && entry.family !== family) return false;
    if (least > 0 && !(entry.speakers >= least)) return false;
    if (least < 0 && !(entry.speakers < -least)) return false;
    return !this.query || words.includes(this.query);
  }

  // Arrow keys, Home and End move over the cells.
  move(event) {
    const cell = event.target.closest("td, th");
    if (!cell || !this.body.contains(cell)) return;
    const row = cell.parentElement;
    const cells = [...row.querySelectorAll("td.c-cell")];
    const at = cells.indexOf(cell);
    const target = {
      ArrowRight: () => cells[at + 1],
      ArrowLeft: () => cells[at - 1],
      ArrowDown: () => row.nextElementSibling?.querySelectorAll("td.c-cell")[at],
      ArrowUp: () => row.previousElementSibling?.querySelectorAll("td.c-cell")[at],
      Home: () => cells[0],
      End: () => cells.at(-1),
      Enter: () => row.querySelector("a").click(),
    }[event.key]?.();
    if (!target) return;
    event.preventDefault();
    cell.setAttribute("tabindex", "-1");
    target.setAttribute("tabindex", "0");
    target.focus();
  }
}

function premiumControls(view) {
  const entries = languages();
  const scripts = [...new Map(entries.map((e) => [e.script, e.scriptName ?? e.script]))];
  const families = [...new Set(entries.map((e) => e.family).filter(Boolean))].sort();
  scripts.sort((a, b) => String(a[1]).localeCompare(String(b[1])));
  const filter = (key) => (value) => {
    view.filters[key] = value;
    view.arrange();
  };
  const search = el("input", {
    type: "search",
    id: "search",
    placeholder: "Shan, Turkic, Arabic …",
    autocomplete: "off",
    on: {
      input: () => {
        view.query = folded(search.value.trim());
        view.arrange();
      },
    },
  });
  const measures = Object.entries(MEASURES)
    .filter(([key]) => (key === "coverage" ? audit().coverage : !ABSOLUTE.has(key) || hasAbsolute()))
    .filter(([key]) => key !== "change" || audit().tokenizers.length > 1)
    .map(([key, m]) => [key, m.name]);
  return el(
    "div",
    { class: "controls" },
    el("label", { class: "field wide" }, el("span", {}, "Search"), search),
    choice("Script", [["", "all scripts"], ...scripts], "", filter("script"), { id: "filter-script" }),
    choice("Family", [["", "all families"], ...families.map((f) => [f, f])], "", filter("family"), { id: "filter-family" }),
    choice("Speakers", SPEAKERS, "0", filter("speakers"), { id: "filter-speakers" }),
    choice("Show", measures, "premium", (value) => {
      view.measure = value;
      view.refill();
      view.arrange();
    }, { id: "measure" }),
    audit().tokenizers.length > 1
      ? choice("Compared with", audit().tokenizers.map((k, t) => [t, k.label]), reference(), (value) => {
        state.reference = Number(value);
        view.refill();
        view.arrange();
        for (const follow of followers) follow(state.language);
      }, { id: "reference" })
      : null,
  );
}

sections.push({
  id: "premiums",
  name: "Premiums",
  needs: () => page.audits.length > 0,
  draw(host) {
    const a = audit();
    const view = new PremiumTable();
    const lost = a.bad.some((row) => row.includes("1"));
    const apart = languages().filter((e) => !e.n);
    draw(
      host,
      heading(
        "premiums",
        "Who pays how much",
        `How many tokens a text takes, against the same text in ${pivot().name}. A premium of 2 means twice the tokens: twice the price, half the context. ${hasAbsolute() ? `The small figures are tokens per passage${a.tokenizers.length > 1 ? " and the change from the tokenizer chosen under “Compared with”" : ""}. ` : ""}Point at a cell for its interval and causes; click a heading to sort.`,
      ),
      a.disagreements.map((note) => el("p", { class: "notice" }, note)),
      premiumControls(view),
      el(
        "div",
        { class: "key-row" },
        premiumScaleLegend(),
        lost
          ? el("p", { class: "unk-key" }, el("span", { class: "key unk" }, "UNK"), `More than ${percent(a.unkLimit)} of the tokens are UNK: what they stand for was thrown away, not encoded, so the count says too little and is no premium.${a.tokenizers.some((_, t) => isBad(t, a.pivot)) ? ` A tokenizer that loses text of ${pivot().name} has no premium in any language.` : ""} Point at a cell for its share.`)
          : null,
        apart.length
          ? el("p", { class: "unk-key" }, el("span", { class: "key none" }, "–"), `No lines in common with ${pivot().name}: ${listed(apart.map((e) => e.name))}.`)
          : null,
      ),
      el("div", { class: "scroller", role: "region", "aria-label": "Table of premiums", tabindex: "0" }, view.table),
      view.status,
      downloads("premiums", "premium_matrix", "summary"),
    );
  },
});
