// Numbers and lists as readers expect them.

const count = (n) => Math.round(n).toLocaleString("en-US");
const counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
const times = (v) => `${plain(v)}×`;
const few = (v) => (v < 9.95 ? v.toFixed(1) : count(v));
const signedPercent = (share) => {
  const p = Math.round(Math.abs(100 * share));
  return `${p === 0 ? "±" : share < 0 ? "−" : "+"}${p}%`;
};
const changed = (share, than) => {
  const p = Math.round(Math.abs(100 * share));
  return p ? `${p}% ${share < 0 ? "fewer" : "more"} tokens than ${than}` : `as many tokens as ${than}`;
};
const percent = (share) => {
  const p = 100 * share;
  if (p > 0 && p < 0.5) return "< 1%";
  if (p >= 99.5 && p < 100) return "> 99%";
  return `${p.toFixed(0)}%`;
};

// A share of UNK is shown to one decimal while it is small: the limit is one percent.
const unkPercent = (share) => (share < 0.0995 ? `${(100 * share).toFixed(1)}%` : percent(share));

function plain(v) {
  if (v === null || v === undefined) return "–";
  if (v < 0.095) return v ? v.toFixed(2) : "0";
  return v < 99.95 ? v.toFixed(1) : v.toFixed(0);
}

function exact(v, digits = 2) {
  return v === null || v === undefined ? "–" : v.toFixed(digits);
}

function people(n) {
  if (n === null || n === undefined) return "";
  const steps = [[1e9, " bn"], [1e6, " m"], [1e3, " k"]];
  for (const [size, unit] of steps) {
    if (n >= size * 0.9995) return `${(n / size).toFixed(n / size < 9.95 ? 1 : 0)}${unit}`;
  }
  return String(n);
}

function peopleWords(n) {
  if (n === null || n === undefined) return "number of speakers not known";
  const steps = [[1e9, "billion"], [1e6, "million"]];
  for (const [size, unit] of steps) {
    if (n >= size) return `about ${(n / size).toFixed(n / size < 9.95 ? 1 : 0)} ${unit} speakers`;
  }
  return `about ${count(Number(n.toPrecision(2)))} speakers`;
}

const money = (v) => (v < 0.995 ? `$${v.toFixed(2)}` : v < 99.5 ? `$${v.toFixed(2)}` : `$${count(v)}`);
const bytes = (n) => (n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(0)} KB` : `${(n / 1e6).toFixed(1)} MB`);

// “a, b and c”
function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

// Text for searching, without case and accents.
const folded = (text) => text.normalize("NFD").replace(/\p{Mn}/gu, "").toLowerCase();

function median(values) {
  const sorted = values.filter((v) => v !== null).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
