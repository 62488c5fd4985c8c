// Byte-pair encoding in the browser, for byte-level tokenizers: the same ids as in Python.

const BASE = 2 ** 20; // more than any id
const PLACE = 2 ** 22; // more than the bytes of any word

// A heap, smallest number first; entries are rank × PLACE + place, so the leftmost of equals wins.
class Heap {
  constructor() {
    this.items = [];
  }
  push(value) {
    const items = this.items;
    let at = items.push(value) - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (items[up] <= value) break;
      items[at] = items[up];
      at = up;
    }
    items[at] = value;
  }
  pop() {
    const items = this.items;
    const top = items[0];
    const value = items.pop();
    if (items.length) {
      let at = 0;
      for (;;) {
        let down = 2 * at + 1;
        if (down >= items.length) break;
        if (down + 1 < items.length && items[down + 1] < items[down]) down++;
        if (items[down] >= value) break;
        items[at] = items[down];
        at = down;
      }
      items[at] = value;
    }
    return top;
  }
}

class BytePairs {
  constructor(spec) {
    this.label = spec.label;
    this.spec = spec;
    this.ids = new Map();
    for (const [id, piece] of spec.pieces.entries()) {
      if (piece && !this.ids.has(piece)) this.ids.set(piece, id);
    }
    this.ranks = new Map();
    const { merges, pieces } = spec;
    for (let n = 0; n < merges.length; n += 2) {
      const key = merges[n] * BASE + merges[n + 1];
      if (!this.ranks.has(key)) this.ranks.set(key, n / 2);
    }
    this.merged = (rank) => this.ids.get(pieces[merges[2 * rank]] + pieces[merges[2 * rank + 1]]);
    this.words = new Map();
    const added = Object.keys(spec.added).sort((a, b) => b.length - a.length);
    this.added = added.length ? new RegExp(`(${added.map((t) => t.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "u") : null;
  }

  encode(text) {
    const parts = this.added ? text.split(this.added) : [text];
    return parts.flatMap((part, n) => (n % 2 ? [this.spec.added[part]] : this.plain(part)));
  }

  plain(text) {
    const normal = this.spec.normalized ? text.normalize(this.spec.normalized) : text;
    const ids = [];
    const cut = new RegExp(this.spec.pattern, "gu");
    let last = 0;
    for (const match of normal.matchAll(cut)) {
      if (this.spec.keep && match.index > last) ids.push(...this.word(normal.slice(last, match.index)));
      if (match[0]) ids.push(...this.word(match[0]));
      last = match.index + match[0].length;
    }
    if (this.spec.keep && last < normal.length) ids.push(...this.word(normal.slice(last)));
    return ids;
  }

  word(text) {
    const known = this.words.get(text);
    if (known) return known;
    const bytes_ = new TextEncoder().encode(text);
    let piece = "";
    for (const byte of bytes_) piece += String.fromCharCode(byte);
    const whole = this.spec.whole ? this.ids.get(piece) : undefined;
    const ids = whole === undefined ? this.merge(Array.from(piece, (c) => this.ids.get(c))) : [whole];
    if (this.words.size > 50000) this.words.clear();
    this.words.set(text, ids);
    return ids;
  }

  // Merge the pair of lowest rank, leftmost first, until no pair has a rank.
  merge(ids) {
    const next = ids.map((_, n) => n + 1);
    const before = ids.map((_, n) => n - 1);
    const rank = (at) => (next[at] < ids.length ? this.ranks.get(ids[at] * BASE + ids[next[at]]) : undefined);
    const heap = new Heap();
    const offer = (at) => {
      const found = rank(at);
      if (found !== undefined) heap.push(found * PLACE + at);
    };
    for (let at = 0; at < ids.length; at++) offer(at);
    while (heap.items.length) {
      const top = heap.pop();
      const at = top % PLACE;
      if (ids[at] < 0 || rank(at) !== Math.floor(top / PLACE)) continue;
      const gone = next[at];
      ids[at] = this.merged(Math.floor(top / PLACE));
      ids[gone] = -1;
      next[at] = next[gone];
      if (next[at] < ids.length) before[next[at]] = at;
      offer(at);
      if (before[at] >= 0) offer(before[at]);
    }
    return ids.filter((id) => id >= 0);
  }

  // A token as the page shows it: its text, or [its bytes in hexadecimal].
  shown(id) {
    const piece = this.spec.pieces[id];
    const raw = Uint8Array.from(piece ?? "", (c) => c.charCodeAt(0));
    if (!piece) return Object.keys(this.spec.added).find((text) => this.spec.added[text] === id) ?? "";
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    } catch {
      return [Array.from(raw, (byte) => byte.toString(16).padStart(2, "0")).join("")];
    }
  }
}

const loadedTokenizers = new Map();

// The tokenizer in a file beside the page; fetched and opened once.
function browserTokenizer(entry) {
  if (!loadedTokenizers.has(entry.file)) {
    const read = async () => {
      const answer = await fetch(entry.file);
      if (!answer.ok) throw new Error(`${entry.file}: ${answer.status}`);
      const stream = answer.body.pipeThrough(new DecompressionStream("gzip"));
      return new BytePairs(JSON.parse(await new Response(stream).text()));
    };
    loadedTokenizers.set(entry.file, read());
  }
  return loadedTokenizers.get(entry.file);
}

// The answer that a playground's server would give, computed in the browser.
async function askBrowser({ text, reference }, told = () => {}) {
  const rows = [];
  for (const entry of page.live.tokenizers) {
    if (!loadedTokenizers.has(entry.file)) told(`Loading ${entry.label} (${bytes(entry.size)}) …`);
    const tokenizer = await browserTokenizer(entry);
    const ids = tokenizer.encode(text);
    rows.push({
      label: entry.label,
      own: false,
      count: ids.length,
      characters: [...text].length,
      unknown: 0,
      tokens: ids.slice(0, 3000).map((id) => tokenizer.shown(id)),
      reference: reference ? tokenizer.encode(reference).length : null,
    });
  }
  return { rows, reference: Boolean(reference) };
}

// For tests, and for whoever wants ids in the console: tokengraftIds("tokenizers/gpt2.bin", ["text"]).
if (page.live?.tokenizers) {
  window.tokengraftIds = async (file, texts) => {
    const tokenizer = await browserTokenizer({ file });
    return texts.map((text) => tokenizer.encode(text));
  };
}
