// One tooltip for hover, focus and touch. Lines are text or nodes made by `el`.

const tip = byId("tip");
let tipOwner = null;

function showTip(target, lines) {
  draw(tip, lines.filter(Boolean).map((line) => el("div", {}, line)));
  tip.hidden = false;
  tipOwner?.removeAttribute("aria-describedby");
  tipOwner = target;
  target.setAttribute("aria-describedby", "tip");
  placeTip();
}

// Placed above its owner, or below if there is no room; hidden when the owner scrolls out of sight.
function placeTip() {
  if (!tipOwner) return;
  const box = tipOwner.getBoundingClientRect();
  const away = box.bottom < 0 || box.top > innerHeight || !tipOwner.isConnected;
  if (away && tipOwner !== document.activeElement) { // what has the focus is being scrolled to
    hideTip();
    return;
  }
  const own = tip.getBoundingClientRect();
  const left = Math.max(8, Math.min(innerWidth - own.width - 8, box.left + box.width / 2 - own.width / 2));
  const above = box.top - own.height - 8;
  tip.style.setProperty("left", `${left}px`);
  tip.style.setProperty("top", `${above < 8 ? box.bottom + 8 : above}px`);
}

function hideTip() {
  tip.hidden = true;
  tipOwner?.removeAttribute("aria-describedby");
  tipOwner = null;
}

// When the pointer leaves, or the page scrolls under it, the tip of what has the focus stays.
function leaveTip() {
  if (tipOwner !== document.activeElement) hideTip();
}

// Show what `about(target)` gives for elements inside `host` that match `selector`.
function tipped(host, selector, about) {
  const react = (event) => {
    const target = event.target.closest?.(selector);
    if (!target || !host.contains(target)) return leaveTip();
    const lines = about(target);
    return lines ? showTip(target, lines) : hideTip();
  };
  host.addEventListener("pointerover", react);
  // Lifting a finger also counts as leaving; the tip it opened stays until another one opens.
  host.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && leaveTip());
  host.addEventListener("focusin", react);
  host.addEventListener("focusout", hideTip);
}

addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
addEventListener("scroll", placeTip, { capture: true, passive: true });

// What is known about one cell of the premium table.
function aboutCell(t, n) {
  const a = audit();
  const [entry, name] = [languages()[n], a.tokenizers[t].label];
  const c = a.cells;
  const head = el("strong", {}, `${entry.name} · ${name}`);
  if (c.premium[t][n] === null) return [head, entry.n ? "not measured" : `no lines in common with ${pivot().name}`];
  if (isBad(t, n)) {
    if (!loses(t, n)) return [head, `No premium: ${name} loses text of ${pivot().name} itself (${unkPercent(c.unk[t][a.pivot])} UNK).`];
    return [
      head,
      `No premium: ${unkPercent(c.unk[t][n])} of the tokens are UNK.`,
      isGone(t, n)
        ? `Most of the text is thrown away, not encoded, so its ${times(c.premium[t][n])} is no bargain.`
        : `What they stand for is lost, so its ${times(c.premium[t][n])} says too little.`,
    ];
  }
  const parts = [];
  if (c.floor[t][n] !== null) parts.push(`${plain(c.floor[t][n])} forced by how words are cut`);
  if (c.longer[t][n] > 0.05) parts.push(`${plain(c.longer[t][n])} for want of longer tokens`);
  if (c.characters[t][n] > 0.05) parts.push(`${plain(c.characters[t][n])} from split characters`);
  const interval = c.low[t][n] === null ? "" : `95% interval ${exact(c.low[t][n])} to ${exact(c.high[t][n])}, `;
  return [
    head,
    el("span", { class: "tip-big" }, `${exact(c.premium[t][n])}× ${pivot().name}`),
    `${interval}${count(entry.n)} units`,
    `${exact(c.sums[t][n])}× by total length`,
    absolutes(t, n).join(", ") || null,
    parts.length > 1 ? parts.join(" + ") : null,
  ];
}
