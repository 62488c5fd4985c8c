// What the page shows now, and what its address says about it.

const page = JSON.parse(byId("data").textContent);
const state = { run: 0, language: null, reference: null };
const sections = []; // { id, name, needs(): boolean, draw(host) }
const followers = []; // called when the chosen language changes

const audit = () => page.audits[state.run];
const languages = () => audit().languages;
const pivot = () => languages()[audit().pivot];
const isBad = (t, n) => audit().bad[t][n] === "1";
// Whether a cell has so much UNK that most of its text is lost.
const isGone = (t, n) => isBad(t, n) && audit().cells.unk[t][n] >= audit().unkMost;
// Whether the language's own text is lost; if only the pivot's is, there is no premium either.
const loses = (t, n) => audit().cells.unk[t][n] > audit().unkLimit;
const placeOf = (code) => languages().findIndex((entry) => entry.code === code);

// The premium of a cell, or null if UNK spoils it.
function honest(t, n) {
  return isBad(t, n) ? null : audit().cells.premium[t][n];
}

// What a premium does not show: absolute tokens, and the change from a chosen tokenizer.
const reference = () => state.reference ?? audit().reference;
const perUnit = (t, n) => audit().cells.perUnit[t][n];

// Tokens more (or fewer) than with the reference, as a share; null if one of the two loses text.
function change(t, n) {
  const [own, base] = [perUnit(t, n), perUnit(reference(), n)];
  return !own || !base || loses(t, n) || loses(reference(), n) ? null : own / base - 1;
}

// “312 tokens per passage”, “0.9 bytes per token”, “12% fewer tokens than GPT-2”
function absolutes(t, n) {
  if (perUnit(t, n) === null) return [];
  const [size, more] = [audit().cells.bytesPerToken[t][n], change(t, n)];
  return [
    `${few(perUnit(t, n))} tokens per passage`,
    size === null || loses(t, n) ? null : `${plain(size)} bytes per token`,
    more === null || t === reference() ? null : changed(more, audit().tokenizers[reference()].label),
  ].filter(Boolean);
}

function chooseLanguage(code, scroll = false) {
  if (placeOf(code) < 0) return false;
  state.language = code;
  for (const follow of followers) follow(code);
  history.replaceState(null, "", `#lang=${encodeURIComponent(code)}`);
  if (scroll) jump("language");
  return true;
}

function jump(id) {
  const target = byId(id);
  if (!target) return;
  target.scrollIntoView({ behavior: "instant" });
  target.querySelector("h2")?.focus({ preventScroll: true });
}

// #premiums · #lang=shn_Mymr · #run=1&lang=shn_Mymr · #text=…&reference=…
function readAddress() {
  const hash = location.hash.slice(1);
  if (!hash) return { section: null };
  if (!hash.includes("=")) return { section: decodeURIComponent(hash) };
  const given = new URLSearchParams(hash);
  return { section: given.get("section") ?? (given.has("text") ? "playground" : null), language: given.get("lang"), run: given.get("run"), text: given.get("text"), reference: given.get("reference") };
}

// ---- packed parts: gzip in base64 -----------------------------------------------------------

async function unpack(packed) {
  const raw = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const opened = new Map();

// The run's sentences with their tokens; unpacked once.
function samples(run = state.run) {
  if (!opened.has(run)) {
    const read = async () => {
      const packed = page.audits[run].samples;
      return packed ? JSON.parse(new TextDecoder().decode(await unpack(packed))) : null;
    };
    opened.set(run, read());
  }
  return opened.get(run);
}

async function download(entry) {
  const kind = entry.file.endsWith(".csv") ? "text/csv" : "application/x-tex";
  saveAs(new Blob([await unpack(entry.data)], { type: kind }), entry.file);
  say(`${entry.file} downloaded`);
}

// Offer the reader a file to save.
function saveAs(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// Buttons for a table's files; `stems` are table names of the run.
function downloads(...stems) {
  const files = audit().downloads.filter((d) => stems.includes(d.file.replace(/\.\w+$/, "")));
  if (!files.length) return null;
  return el(
    "p",
    { class: "downloads" },
    el("span", {}, "Download "),
    files.map((entry) => downloadButton(entry)),
  );
}

function downloadButton(entry) {
  const form = entry.file.endsWith(".csv") ? "CSV" : "LaTeX";
  const name = `${entry.file.replace(/\.\w+$/, "").replaceAll("_", " ")} ${form}`;
  return el(
    "button",
    {
      type: "button",
      class: "small",
      "data-file": entry.file,
      "aria-label": `${name}, download, ${bytes(entry.size)}`,
      on: { click: () => download(entry) },
    },
    name,
  );
}

function heading(id, title, ...intro) {
  return [
    el("h2", { tabindex: "-1", id: `${id}-title` }, title, el("a", { class: "anchor", href: `#${id}`, "aria-label": `Link to ${title}` }, "#")),
    intro.length ? el("p", { class: "intro" }, ...intro) : null,
  ];
}
