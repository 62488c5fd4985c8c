// Pieces that several charts share.

const STEPS = 41;

// CSS class of a premium, on a log scale from 1/20 to 20, and of a share, from 0 to 1.
function premiumClass(v) {
  const at = (Math.log(Math.min(20, Math.max(0.05, v))) / Math.log(20) + 1) / 2;
  return `p${Math.round(at * (STEPS - 1))}`;
}
const shareClass = (v) => `v${Math.round(Math.min(1, Math.max(0, v)) * (STEPS - 1))}`;

// CSS classes of the lines of a chart, and of groups of scripts, in the order of the legend.
const lineClass = (n) => `c${n % 12}`;
const GROUPS = page.groups;
const groupClass = (group) => `g${Math.max(0, GROUPS.indexOf(group))}`;

// value → position on a log axis
function logScale(low, high, from, to) {
  const span = Math.log(high / low);
  return (v) => from + ((to - from) * Math.log(Math.max(v, low) / low)) / span;
}

const PREMIUM_TICKS = [0.5, 1, 2, 5, 10, 20, 50];

function premiumScaleLegend() {
  const ticks = [0.5, 1, 2, 5, 10, 20];
  const cells = ticks.map((v) => el("span", { class: `key ${premiumClass(v)}` }, `${v}×`));
  return el("div", { class: "legend", "aria-hidden": "true" }, cells);
}

// A row of a bar chart made of HTML: name, bar, number. Parts are [class, share of the width].
function bar(name, parts, value, attributes = {}) {
  return el(
    "div",
    { class: "bar", ...attributes },
    el("div", { class: "bar-name" }, name),
    el(
      "div",
      { class: "bar-track" },
      parts.map(([look, share]) =>
        el("div", { class: `bar-part ${look}`, style: { width: `${(100 * Math.max(0, share)).toFixed(2)}%` } }),
      ),
    ),
    el("div", { class: "bar-value" }, value),
  );
}

// Arrow keys move between the elements that match `selector`; only one of them is a tab stop.
function walk(host, selector, order = (items) => items) {
  const items = () => order([...host.querySelectorAll(selector)]);
  const first = items()[0];
  if (first) first.setAttribute("tabindex", "0");
  host.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const now = event.target.closest?.(selector);
    if (!step || !now) return;
    const all = items();
    const next = all[all.indexOf(now) + step];
    if (!next) return;
    event.preventDefault();
    now.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}
