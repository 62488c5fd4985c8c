// Share: a picture drawn here (PNG, with source and date), and a link that opens the same view.

const CARD_WIDTH = 1200;
const CARD_FONT = '"DejaVu Sans", system-ui, sans-serif';

// The light-mode colour of one of the page's variables.
const byDay = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).match(/#\w+/)[0];

const languageLink = (code) => `${location.href.split("#")[0]}#${state.run ? `run=${state.run}&` : ""}lang=${encodeURIComponent(code)}`;
const textLink = (text, reference) => `${location.href.split("#")[0]}#${new URLSearchParams({ text, ...(reference ? { reference } : {}) })}`;
const madeLine = (source) => `${source ? `Text: ${source}. ` : ""}Made with tokengraft ${page.version}, ${page.made}.`;

// A canvas `height` high with a title folded at its width; `paint` draws the rest from `y` on.
function cardCanvas(title, source, height, paint) {
  const canvas = el("canvas", { width: CARD_WIDTH, height });
  const pen = canvas.getContext("2d");
  pen.fillStyle = byDay("--paper");
  pen.fillRect(0, 0, CARD_WIDTH, height);
  pen.textBaseline = "top";
  let y = 48;
  for (const line of foldedLines(pen, title, `700 44px ${CARD_FONT}`, CARD_WIDTH - 128)) {
    pen.fillStyle = byDay("--ink");
    pen.fillText(line, 64, y);
    y += 56;
  }
  paint(pen, y + 20);
  pen.fillStyle = byDay("--quiet");
  pen.font = `22px ${CARD_FONT}`;
  pen.fillText(madeLine(source), 64, height - 52);
  return canvas;
}

function foldedLines(pen, text, font, room) {
  pen.font = font;
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (pen.measureText(longer).width <= room || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// One language: a bar per tokenizer, dearest last.
function pictureOfLanguage(n) {
  const entry = languages()[n];
  const order = ranked(n);
  const first = leading(order);
  const title = !order.length
    ? whyNone(n)
    : n === audit().pivot
      ? `${entry.name}: what all others are measured against`
      : `${entry.name} takes ${plain(first.premium)} times the tokens of ${pivot().name} on ${first.label}${order.length > 1 ? `; ${rangeWords(order)} on all that write it` : ""}`;
  return cardCanvas(title, audit().title, 270 + 46 * order.length, (pen, top) => {
    const most = Math.max(1, ...order.map((r) => r.premium));
    order.forEach((r, i) => {
      const y = top + 46 * i;
      pen.font = `24px ${CARD_FONT}`;
      pen.fillStyle = byDay("--ink");
      pen.fillText(r.label, 64, y);
      pen.fillStyle = byDay(r.premium > 2 ? "--more" : "--less");
      pen.fillRect(330, y, (660 * r.premium) / most, 30);
      pen.fillStyle = byDay("--ink");
      pen.fillText(times(r.premium), 344 + (660 * r.premium) / most, y + 2);
    });
  });
}

// A text of the playground, as the shortest and the longest tokenization split it.
function pictureOfText({ rows, reference }) {
  const whole = rows.filter((r) => !r.unknown);
  const sorted = [...(whole.length ? whole : rows)].sort((a, b) => a.count - b.count);
  const shown = sorted.length > 1 ? [sorted[0], sorted.at(-1)] : sorted;
  const blocks = shown.map((row) => layTokens(row.tokens));
  const height = 250 + blocks.reduce((sum, b) => sum + 74 + 44 * b.lines, 0);
  const title = shown.length > 1
    ? `${counted(shown[0].count, "token")} on ${shown[0].label}, ${count(shown[1].count)} on ${shown[1].label}`
    : `${counted(shown[0].count, "token")} on ${shown[0].label}`;
  return cardCanvas(title, "typed into the playground", height, (pen, top) => {
    let y = top;
    shown.forEach((row, i) => {
      const ratio = reference && row.reference ? `, ${times(row.count / row.reference)} its reference` : "";
      pen.font = `600 24px ${CARD_FONT}`;
      pen.fillStyle = byDay("--quiet");
      pen.fillText(`${row.label}: ${counted(row.count, "token")}${ratio}`, 64, y);
      for (const piece of blocks[i].pieces) {
        pen.fillStyle = byDay(`--c${piece.n % 4}`);
        pen.fillRect(64 + piece.x, y + 40 + 44 * piece.line, piece.width - 3, 36);
        pen.fillStyle = "#ffffff";
        pen.font = piece.font;
        pen.fillText(piece.text, 64 + piece.x + 4, y + 46 + 44 * piece.line);
      }
      y += 74 + 44 * blocks[i].lines;
    });
  });
}

// Where each token is drawn; tokens beyond ten lines are left out (the link shows them all).
function layTokens(tokens) {
  const pen = el("canvas").getContext("2d");
  const fonts = `24px ${getComputedStyle(document.body).fontFamily}`;
  const pieces = [];
  let [x, line] = [0, 0];
  for (const [n, token] of tokens.entries()) {
    const text = token === 0 ? "UNK" : Array.isArray(token) ? token[0] : token.replaceAll("\n", "⏎");
    pen.font = fonts;
    const width = Math.max(14, pen.measureText(text).width + 11);
    if (x + width > CARD_WIDTH - 128) [x, line] = [0, line + 1];
    if (line > 9) {
      pieces.push({ n, text: "…", x: CARD_WIDTH - 124, line: 9, width: 40, font: fonts });
      break;
    }
    pieces.push({ n, text, x, line, width, font: fonts });
    x += width;
  }
  return { pieces, lines: Math.min(line + 1, 10) };
}

// Buttons under what can be shared; a picture is drawn when asked for.
function shareButtons(name, picture, link, beside = null) {
  const save = async () => {
    await document.fonts.ready;
    const canvas = picture();
    if (!canvas) return say("Nothing to draw yet");
    saveAs(await new Promise((done) => canvas.toBlob(done, "image/png")), `tokengraft-${name}.png`);
    return say("Picture saved");
  };
  const box = el("input", { type: "text", class: "link-box", readonly: true, "aria-label": "Link to this view", hidden: true, on: { focus: () => box.select() } });
  const copy = async () => {
    box.value = link();
    box.hidden = false;
    try {
      await navigator.clipboard.writeText(box.value);
      say("Link copied");
    } catch {
      box.focus(); // a page opened from disk may not write to the clipboard
    }
  };
  return el(
    "p",
    { class: "downloads share" },
    el("span", {}, "Share "),
    el("button", { type: "button", class: "small", "data-share": "picture", on: { click: save } }, "picture (PNG)"),
    el("button", { type: "button", class: "small", "data-share": "link", on: { click: copy } }, "link"),
    beside,
    box,
  );
}
