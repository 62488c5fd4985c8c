// Small multiples: one panel per script, one row per tokenizer, from the cheapest language to the costliest.

const PANELS = innerWidth < 640 ? 6 : 12;

function scriptPanels() {
  const groups = new Map();
  languages().forEach((entry, n) => {
    if (n === audit().pivot || !entry.n) return;
    if (!groups.has(entry.script)) groups.set(entry.script, { name: entry.scriptName ?? entry.script, places: [] });
    groups.get(entry.script).places.push(n);
  });
  const panels = [...groups.values()].map((group) => {
    const rows = audit().tokenizers.map((k, t) => {
      const values = group.places.map((n) => honest(t, n)).filter((v) => v !== null);
      const lost = group.places.every((n) => isGone(t, n)) ? "lost to UNK" : `UNK above ${percent(audit().unkLimit)}`;
      return { label: k.label, values, lost: isBad(t, audit().pivot) ? `${pivot().name} lost to UNK` : group.places.some((n) => isBad(t, n)) ? lost : "no lines in common" };
    });
    return { ...group, rows, typical: median(rows.map((r) => median(r.values))) ?? 0 };
  });
  return panels.sort((a, b) => b.places.length - a.places.length || b.typical - a.typical);
}

function paintPanel(panel, high) {
  const [width, left, row, top] = [250, 74, 17, 4];
  const height = top + row * panel.rows.length + 16;
  const x = logScale(0.5, high, left, width - 10);
  const parts = [];
  for (const v of [1, 5, 20].filter((v) => v < high)) {
    parts.push(
      shape("line", { x1: x(v), x2: x(v), y1: top, y2: height - 14, class: v === 1 ? "rule one" : "rule" }),
      shape("text", { x: x(v), y: height - 2, class: "tick middle" }, `${v}×`),
    );
  }
  panel.rows.forEach((r, i) => {
    const y = top + row * i + row / 2;
    parts.push(shape("text", { x: left - 8, y: y + 4, class: "tick end" }, r.label));
    if (!r.values.length) {
      parts.push(shape("text", { x: left + 4, y: y + 4, class: "tick lost" }, r.lost));
      return;
    }
    const [low, top_] = [Math.min(...r.values), Math.max(...r.values)];
    parts.push(
      shape("line", { x1: x(low), x2: x(top_), y1: y, y2: y, class: "span" }),
      shape("circle", { cx: x(median(r.values)), cy: y, r: 4.5, class: `mid ${premiumClass(median(r.values))}` }),
    );
  });
  const words = panel.rows.map((r) => `${r.label} ${r.values.length ? times(median(r.values)) : r.lost}`);
  return el(
    "figure",
    { class: "panel" },
    el("figcaption", {}, el("strong", {}, panel.name), ` ${panel.places.length === 1 ? languages()[panel.places[0]].name : `${panel.places.length} languages`}`),
    shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${panel.name}: ${words.join(", ")}` }, parts),
  );
}

sections.push({
  id: "scripts",
  name: "Scripts",
  needs: () => page.audits.length > 0 && scriptPanels().length > 1,
  draw(host) {
    const panels = scriptPanels();
    const high = Math.max(6, ...panels.flatMap((p) => p.rows.flatMap((r) => r.values))) * 1.1;
    const grid = el("div", { class: "panels" }, panels.slice(0, PANELS).map((p) => paintPanel(p, high)));
    const rest = panels.length - PANELS;
    const more = rest > 0
      ? el("button", { type: "button", on: { click: () => {
          grid.append(...panels.slice(PANELS).map((p) => paintPanel(p, high)));
          more.remove();
        } } }, `Show ${counted(rest, "more script")}`)
      : null;
    draw(
      host,
      heading("scripts", "A world of scripts", "For each script the median premium of its languages (dot) and the range from the cheapest to the costliest (line), tokenizer by tokenizer."),
      grid,
      more,
    );
  },
});
