// Put the sections together, and keep page and address in step.

const THEMES = { light: "dark", dark: "light" };

function currentTheme() {
  const set = document.documentElement.dataset.theme;
  return set ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function setTheme(theme, button) {
  document.documentElement.dataset.theme = theme;
  button.setAttribute("aria-label", `Switch to ${THEMES[theme]} colours`);
  button.textContent = theme === "dark" ? "☀" : "☾";
  try {
    localStorage.setItem("tokengraft-theme", theme);
  } catch {
    // A page opened from disk may have no storage; the choice is then forgotten when it is closed.
  }
}

function drawBar(shown) {
  const toggle = el("button", { type: "button", id: "theme", class: "icon", on: { click: () => setTheme(THEMES[currentTheme()], toggle) } });
  let stored = null;
  try {
    stored = localStorage.getItem("tokengraft-theme");
  } catch {
    stored = null;
  }
  if (stored in THEMES) document.documentElement.dataset.theme = stored;
  const theme = currentTheme();
  toggle.setAttribute("aria-label", `Switch to ${THEMES[theme]} colours`);
  toggle.textContent = theme === "dark" ? "☀" : "☾";
  draw(
    byId("bar"),
    el(
      "div",
      { class: "wrap bar-row" },
      el("a", { class: "brand", href: "#top" }, "tokengraft"),
      el("nav", { "aria-label": "Sections" }, el("ul", {}, shown.map((s) => el("li", {}, el("a", { href: `#${s.id}` }, s.name))))),
      page.audits.length > 1
        ? choice("Run", page.audits.map((a, i) => [i, a.title]), state.run, (value) => {
            state.run = Number(value);
            drawAll();
          }, { id: "run" })
        : null,
      toggle,
    ),
  );
}

function drawAll() {
  followers.length = 0;
  if (page.audits.length && placeOf(state.language) < 0) {
    // One that was grafted or planned for, so that its tokens before and after can be seen.
    const own = [...page.grafts, ...page.plans].flatMap((run) => run.languages.map((entry) => entry.code));
    state.language = own.find((code) => placeOf(code) >= 0) ?? languages()[audit().headline.worst ?? 0].code;
  }
  const shown = sections.filter((s) => s.needs());
  drawBar(shown);
  const hosts = shown.map((s) => el("section", { id: s.id, class: "wrap", "aria-labelledby": `${s.id}-title` }));
  const top = el("div", { id: "top", class: "wrap hero" });
  draw(byId("main"), top, hosts);
  if (page.audits.length) drawHero(top);
  else draw(top, el("h1", {}, document.title));
  for (const [i, section] of shown.entries()) section.draw(hosts[i]);
  draw(
    byId("foot"),
    el("div", { class: "wrap" }, el("p", {}, `Made with tokengraft ${page.version}. One file, no network: all code, fonts and data are inside. Fonts: Noto, SIL Open Font License 1.1.`)),
  );
}

function follow() {
  const { section, language, run, text, reference } = readAddress();
  if (text && byId("live-text")) {
    [byId("live-text").value, byId("live-reference").value] = [text, reference ?? ""];
    byId("live-reference").dispatchEvent(new Event("input"));
  }
  if (run !== undefined && run !== null && page.audits[run] && Number(run) !== state.run) {
    state.run = Number(run);
    drawAll();
  }
  if (language && page.audits.length && chooseLanguage(language)) jump(section ?? "language");
  else if (section && section !== "main") jump(section);
}

drawAll();
addEventListener("hashchange", follow);
addEventListener("beforeprint", hideTip);
if (location.hash) follow();

// Parts that are drawn later push the rest down: scroll again, unless the reader has scrolled.
let moved = false;
for (const type of ["wheel", "touchstart", "keydown", "pointerdown"]) {
  addEventListener(type, () => { moved = true; }, { once: true, passive: true });
}
const settled = page.audits.length ? samples().catch(() => null) : Promise.resolve();
settled.then(() => requestAnimationFrame(() => {
  if (location.hash && !moved) follow();
  document.documentElement.dataset.ready = "true";
}));
