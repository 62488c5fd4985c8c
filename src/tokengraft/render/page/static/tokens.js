// See the tokens: one sentence under every tokenizer, boundaries coloured, loose bytes in hex.

const ROWS = 4; // shown at first

// Tokens as nodes. A token is its text, [bytes in hex], or 0 for UNK.
function tokenNodes(tokens) {
  const nodes = [];
  let loose = null;
  let alone = true; // no letter to the left that a combining mark could attach to
  tokens.forEach((token, i) => {
    const tint = `k${i % 5}`;
    if (Array.isArray(token)) {
      if (!loose) {
        loose = { hex: "", chips: [] };
        nodes.push(loose);
      }
      loose.hex += token[0];
      loose.chips.push(el("span", { class: `hex ${tint}` }, bytesShown(token[0])));
      if (spelled(loose.hex) !== null) loose = null; // whole characters: what follows stands apart
      alone = true;
      return;
    }
    loose = null;
    nodes.push(token === 0
      ? el("span", { class: "tok unk", title: "UNK: this text is thrown away" }, "UNK")
      : textToken(alone && MARK.test(token) ? `◌${token}` : token, tint));
    alone = token === 0;
  });
  return nodes.map((node) => (node instanceof Node ? node : looseBytes(node)));
}

// Khmer and Burmese separate words by zero-width spaces, which cost tokens like other characters.
const ZERO = "\u200b";

function textToken(text, tint) {
  const parts = text.split(ZERO).flatMap((part, i) => [
    i ? el("span", { class: "zero", title: "U+200B, zero width space" }, "·") : null,
    ...tamed(part),
  ]);
  return el("span", { class: `tok ${tint}` }, parts);
}

// The text that bytes in hex spell, or null if they are not whole characters.
function spelled(hex) {
  try {
    const raw = Uint8Array.from(hex.match(/../g) ?? [], (b) => parseInt(b, 16));
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
  } catch {
    return null;
  }
}

// Bytes of a token: whole characters as text, the others in hexadecimal.
function bytesShown(hex) {
  const found = [];
  let rest = hex.match(/../g) ?? [];
  let bare = [];
  const flush = () => {
    if (bare.length) found.push(bare.map((b) => b.toUpperCase()).join(" "));
    bare = [];
  };
  while (rest.length) {
    const first = parseInt(rest[0], 16);
    const size = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 0;
    const text = size && rest.length >= size ? spelled(rest.slice(0, size).join("")) : null;
    if (text === null) {
      bare.push(rest[0]);
      rest = rest.slice(1);
      continue;
    }
    flush();
    rest = rest.slice(size);
    const last = found.at(-1);
    const shown = text === " " ? "␣" : text === ZERO ? "·" : CONTROLS.test(text) ? codePoint(text) : text;
    if (last instanceof Node) last.textContent += shown;
    else found.push(el("span", { class: "in" }, MARK.test(shown) ? `◌${shown}` : shown));
  }
  flush();
  return found;
}

// Consecutive loose bytes, with the characters that they form together below them.
function looseBytes({ hex, chips }) {
  const whole = spelled(hex)?.trim();
  const text = whole ? [...whole.replaceAll(ZERO, "")].map((c) => (CONTROLS.test(c) ? codePoint(c) : c)).join("") : null;
  return el(
    "span",
    { class: "loose" },
    el("span", { class: "chips", dir: "ltr" }, chips),
    text ? el("span", { class: "whole" }, MARK.test(text) ? `◌${text}` : text) : null,
  );
}

function tokenRow(label, tokens, entry, base, graft) {
  const lost = tokens.includes(0);
  const share = tokens.length / base;
  const ratio = lost
    ? el("span", { class: "ratio unk" }, "UNK")
    : base ? el("span", { class: `ratio ${premiumClass(share)}` }, times(share)) : null;
  return el(
    "div",
    { class: graft ? "token-row graft" : "token-row" },
    el(
      "div",
      { class: "token-head" },
      el("strong", {}, label),
      el("span", {}, `${count(tokens.length)} ${tokens.length === 1 ? "token" : "tokens"}`),
      ratio,
    ),
    el("div", { class: "token-text", lang: tag(entry.code), dir: entry.dir, "data-script": entry.script }, tokenNodes(tokens)),
  );
}

function paintTokens(host, store, code, unit) {
  const entry = languages()[placeOf(code)];
  const [line, rows] = [store.lines[code]?.[unit], store.tokens[code]?.[unit]];
  const start = pivot().code;
  if (!line) {
    return draw(host, el("p", { class: "status" }, `${entry?.name ?? code} lacks this sentence; choose the other one or another language.`));
  }
  const base = store.tokens[start][unit];
  return draw(
    host,
    el("blockquote", {},
      written(tamed(store.lines[start][unit]), pivot(), {}, "p"),
      code === start ? null : written(tamed(line), entry),
    ),
    tokenRows(store.shelves.map((shelf, i) => rows[i] && tokenRow(shelf.label, rows[i], entry, base[i]?.length, shelf.graft)).filter(Boolean)),
  );
}

// The first few rows (a graft and its base come first), and a button that shows the others.
function tokenRows(rows) {
  const rest = rows.slice(ROWS);
  if (rest.length < 2) return rows;
  const more = el("button", { type: "button", class: "more", on: { click: () => more.replaceWith(...rest) } }, `Show ${counted(rest.length, "more tokenizer")}`);
  return [...rows.slice(0, ROWS), more];
}

sections.push({
  id: "tokens",
  name: "See the tokens",
  needs: () => page.audits.some((a) => a.samples),
  draw(host) {
    const view = el("div", { class: "token-view" }, el("p", { class: "status" }, "Unpacking …"));
    const source = el("p", { class: "status" });
    let [code, unit, store] = [state.language, 0, null];
    const picker = languagePicker("token-language", "Language", (wanted) => chooseLanguage(wanted));
    const units = el("div", { class: "pick-unit", role: "group", "aria-label": "Sentence" });
    const paint = () => {
      if (!store) return;
      picker.set(code);
      paintTokens(view, store, code, unit);
    };
    followers.push((wanted) => {
      code = wanted;
      paint();
    });
    draw(
      host,
      heading("tokens", "See the tokens", "One sentence, cut by every tokenizer; each colour is a token. Where a character is torn apart, its loose bytes are shown in hexadecimal above it."),
      el("div", { class: "controls" }, picker.field, units),
      view,
      source,
    );
    samples().then(
      (found) => {
        if (!found) return draw(view, el("p", { class: "status" }, "This run has no sentences to show."));
        store = found;
        draw(units, store.units.map((_, i) => el("button", {
          type: "button", class: "small", "aria-pressed": String(i === unit),
          on: { click: (event) => {
            unit = i;
            for (const b of units.children) b.setAttribute("aria-pressed", String(b === event.currentTarget));
            paint();
          } },
        }, `Sentence ${i + 1}`)));
        source.textContent = `Text: ${store.corpus}${store.own ? "" : ", since the run’s own text is not available"}.`;
        return paint();
      },
      () => draw(view, el("p", { class: "status" }, "This browser cannot unpack the sentences (it lacks DecompressionStream).")),
    );
  },
});
