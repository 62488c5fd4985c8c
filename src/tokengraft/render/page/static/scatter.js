// Premium against speakers, for one tokenizer; every point is a language.

function scatterPoints(t) {
  return languages()
    .map((entry, n) => ({ entry, n, x: entry.readers, y: honest(t, n) }))
    .filter((p) => p.x && p.y !== null);
}

function paintScatter(host, t, width) {
  const points = scatterPoints(t);
  const height = Math.max(340, Math.min(520, width * 0.55));
  const [left, right, top, bottom] = [46, 14, 14, 46];
  const most = Math.max(...points.map((p) => p.y), 4);
  const least = Math.min(...points.map((p) => p.y), 0.8);
  const x = logScale(Math.min(...points.map((p) => p.x)) * 0.8, Math.max(...points.map((p) => p.x)) * 1.3, left, width - right);
  const y = logScale(least * 0.9, most * 1.12, height - bottom, top);
  const axis = [];
  for (const v of PREMIUM_TICKS.filter((v) => v > least * 0.9 && v < most * 1.12)) {
    axis.push(
      shape("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: v === 1 ? "rule one" : "rule" }),
      shape("text", { x: left - 8, y: y(v) + 4, class: "tick end" }, `${v}×`),
    );
  }
  for (const [v, text] of [[1e3, "1,000"], [1e5, "100,000"], [1e7, "10 million"], [1e9, "1 billion"]]) {
    if (x(v) <= left || v < Math.min(...points.map((p) => p.x))) continue;
    axis.push(shape("text", { x: Math.min(x(v), width - right - 22), y: height - bottom + 20, class: "tick middle" }, text));
  }
  axis.push(shape("text", { x: (left + width - right) / 2, y: height - 6, class: "tick middle" }, "speakers"));
  const dots = points.map((p) =>
    shape("circle", {
      cx: x(p.x).toFixed(1), cy: y(p.y).toFixed(1), r: 5, class: `dot ${groupClass(p.entry.group)}`,
      "data-n": p.n, tabindex: "-1", role: "img", "aria-label": `${p.entry.name}: ${exact(p.y)} times, ${peopleWords(p.x)}`,
    }),
  );
  draw(
    host,
    shape(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `Premium on ${audit().tokenizers[t].label} against number of speakers, ${counted(points.length, "language")}; arrow keys move from language to language` },
      axis, dots, scatterLabels(points, x, y, width - right),
    ),
  );
  const byX = (items) => items.sort((a, b) => a.getAttribute("cx") - b.getAttribute("cx"));
  walk(host.firstChild, "circle", byX);
}

// Names of the costliest and the most spoken languages, those that do not overlap.
function scatterLabels(points, x, y, end) {
  const costly = [...points].sort((a, b) => b.y - a.y).slice(0, 14);
  const big = [...points].sort((a, b) => b.x - a.x).slice(0, 16);
  const boxes = points.map((p) => [x(p.x) - 4, y(p.y) - 4, x(p.x) + 4, y(p.y) + 4]);
  const labels = [];
  for (const p of [...new Set([...costly, ...big])]) {
    const text = p.entry.name.replace(/ \([^)]* script\)$/, "");
    const wide = text.length * 6.6;
    const [cx, cy] = [x(p.x), y(p.y)];
    const places = [[cx + 8, cy + 4, "start"], [cx - 8, cy + 4, "end"], [cx, cy - 9, "middle"]];
    for (const [px, py, anchor] of places) {
      const from = anchor === "start" ? px : anchor === "end" ? px - wide : px - wide / 2;
      const box = [from, py - 11, from + wide, py + 3];
      const clear = box[0] > 40 && box[2] < end && box[1] > 4 &&
        boxes.every((b) => b[2] < box[0] || b[0] > box[2] || b[3] < box[1] || b[1] > box[3]);
      if (!clear) continue;
      boxes.push(box);
      labels.push(shape("text", { x: px.toFixed(1), y: py.toFixed(1), class: `label ${anchor}` }, text));
      break;
    }
  }
  return shape("g", { "aria-hidden": "true" }, labels);
}

// What the points show: whether script or number of speakers divides them more. The pivot, which is
// always 1, is left out; with only a handful of languages on either side nothing is claimed.
const ENOUGH = 5;

function fork(t) {
  const points = scatterPoints(t).filter((p) => p.n !== audit().pivot);
  const middle = (pass) => {
    const values = points.filter(pass).map((p) => p.y);
    return values.length < ENOUGH ? null : median(values);
  };
  const latin = (p) => p.entry.script === "Latn";
  const big = (p) => p.x >= 1e7;
  const [inside, outside] = [middle(latin), middle((p) => !latin(p))];
  const [many, few] = [middle(big), middle((p) => !big(p))];
  const name = audit().tokenizers[t].label;
  const shown = `Each point is a language whose number of speakers is known: ${count(points.length)} besides ${pivot().name}.`;
  if ([inside, outside, many, few].includes(null)) {
    return { title: "Premium and number of speakers", words: shown };
  }
  const apart = (a, b) => Math.max(a / b, b / a);
  const script = apart(inside, outside) > apart(many, few);
  return {
    title: script ? "The script counts for more than the speakers" : "Premium and number of speakers",
    words: `${shown} On ${name} half of those in Latin letters pay more than ${times(inside)}, half of the others more than ${times(outside)}. Ten million speakers or more: ${times(many)}; fewer: ${times(few)}.`,
  };
}

sections.push({
  id: "speakers",
  name: "Speakers",
  needs: () => page.audits.length > 0 && languages().filter((e) => e.readers).length > 2,
  draw(host) {
    let t = defaultTokenizer();
    const plot = el("div", { class: "plot" });
    const [title, words] = [el("div"), el("p", { class: "intro" })];
    const announce = () => {
      const found = fork(t);
      draw(title, heading("speakers", found.title));
      words.textContent = found.words;
    };
    const present = GROUPS.filter((g) => languages().some((e) => e.group === g));
    const repaint = fitted(plot, (width) => paintScatter(plot, t, width));
    draw(
      host,
      title,
      words,
      el("div", { class: "controls" }, choice("Tokenizer", audit().tokenizers.map((k, i) => [i, k.label]), t, (value) => {
        t = Number(value);
        announce();
        repaint();
      }, { id: "scatter-tokenizer" })),
      el("ul", { class: "groups" }, present.map((g) => el("li", { class: groupClass(g) }, el("i"), g))),
      plot,
    );
    announce();
    tipped(plot, "circle", (dot) => aboutCell(t, Number(dot.dataset.n)));
    plot.addEventListener("click", (event) => {
      const dot = event.target.closest("circle");
      if (dot) chooseLanguage(languages()[dot.dataset.n].code, true);
    });
  },
});

// The tokenizer a chart opens with: Llama 3 if present, since it is widely used and unequal.
function defaultTokenizer() {
  const at = audit().tokenizers.findIndex((k) => k.name === "llama-3");
  return at < 0 ? audit().headline.tokenizer ?? 0 : at;
}
