// Building the document. Data reach it only as text nodes and attribute values, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [type, react] of Object.entries(value)) node.addEventListener(type, react);
    } else if (key === "style") {
      for (const [name, part] of Object.entries(value)) node.style.setProperty(name, part);
    } else {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  for (const child of children.flat(2)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

const el = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);
const shape = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

const byId = (id) => document.getElementById(id);

function say(text) {
  byId("said").textContent = text;
}

// A labelled <select>; options are [value, text] pairs.
function choice(label, options, value, react, attributes = {}) {
  const select = el(
    "select",
    { ...attributes, on: { change: () => react(select.value) } },
    options.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text)),
  );
  return el("label", { class: "field" }, el("span", {}, label), select);
}

// Controls that reorder or hide text are shown as U+…; joiners stay, since letters join by them.
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]/u;

const codePoint = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

// Text made unable to reorder its surroundings: a list of strings, with nodes for controls.
function tamed(text) {
  const parts = text.split(new RegExp(`(${CONTROLS.source})`, "u")).filter(Boolean);
  return parts.map((part) => (CONTROLS.test(part) ? el("span", { class: "control" }, codePoint(part)) : part));
}

// Text in a language: direction, language and script tell the browser how to shape it.
function written(text, entry, attributes = {}, name = "span") {
  return el(
    name,
    { lang: tag(entry.code), dir: entry.dir, "data-script": entry.script, ...attributes },
    text,
  );
}

// The language's own name beside the English one, if they differ.
const ownName = (entry) =>
  entry.autonym && entry.autonym !== entry.name ? written(entry.autonym, entry, { class: "own" }) : null;

// shn_Mymr → shn-Mymr, bod_Tibt → bo-Tibt, as HTML wants it
function tag(code) {
  if (!/^[a-z]{3}_[A-Z][a-z]{3}/.test(code)) return null;
  return Intl.getCanonicalLocales(code.slice(0, 8).replace("_", "-"))[0];
}

function draw(host, ...children) {
  host.replaceChildren(...children.flat(2).filter(Boolean));
  return host;
}

// Draw now and again whenever the width of `host` changes.
function fitted(host, paint) {
  let width = 0;
  const again = () => {
    const now = Math.round(host.clientWidth);
    if (now > 0 && now !== width) {
      width = now;
      paint(now);
    }
  };
  new ResizeObserver(again).observe(host);
  return () => {
    width = 0;
    again();
  };
}
