// Playground: text typed here is tokenized by the local server or, on a static site, by the browser.

function liveRow(row, base) {
  const about = { code: "", dir: "auto", script: "" };
  const node = tokenRow(row.label, row.tokens, about, base, row.own);
  if (row.characters) node.querySelector(".token-head").append(el("span", { class: "quiet" }, `${(row.count / row.characters).toFixed(2)} per character`));
  if (row.count > row.tokens.length) {
    node.querySelector(".token-head span").textContent = `${count(row.count)} tokens`;
    node.append(el("p", { class: "status" }, `The first ${count(row.tokens.length)} are shown.`));
  }
  return node;
}

async function ask(body) {
  const answer = await fetch("/tokenize", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

sections.unshift({
  id: "playground",
  name: "Playground",
  needs: () => Boolean(page.live),
  draw(host) {
    const result = el("div", { class: "token-view", "aria-live": "polite" });
    const status = el("p", { class: "status", role: "status" });
    let [waiting, latest, shared] = [0, 0, null];
    const run = async () => {
      const turn = ++latest;
      if (!text.value) {
        status.textContent = "";
        return draw(result);
      }
      try {
        const found = await (page.live.tokenizers ? askBrowser : ask)({ text: text.value, reference: reference.value }, (said) => { status.textContent = said; });
        if (turn !== latest) return null;
        const lowest = Math.min(...found.rows.filter((r) => !r.unknown).map((r) => r.count));
        status.textContent = found.reference
          ? `Ratios are against the same text in ${pivotWord()}, by the same tokenizer.`
          : `Ratios are against the shortest of these. Give the same text in ${pivotWord()} for a premium.`;
        shared = { text: text.value, reference: reference.value, rows: found.rows };
        return draw(result, found.rows.map((row) => liveRow(row, found.reference ? row.reference : lowest)));
      } catch (problem) {
        if (turn === latest) draw(result, el("p", { class: "problem", role: "alert" }, problem.message));
        return null;
      }
    };
    const pivotWord = () => (page.audits.length ? pivot().name : "English");
    // The reference translates the example only: with another text it would give a false premium.
    const retyped = () => {
      if (text.value !== (page.live?.text ?? "") && reference.value === (page.live?.reference ?? "")) reference.value = "";
      soon();
    };
    const soon = () => {
      clearTimeout(waiting);
      waiting = setTimeout(run, 150);
    };
    const text = el("textarea", { id: "live-text", rows: 4, dir: "auto", maxlength: page.live?.limit, spellcheck: "false", on: { input: retyped } }, page.live?.text ?? "");
    const reference = el("textarea", { id: "live-reference", rows: 4, dir: "auto", maxlength: page.live?.limit, spellcheck: "false", on: { input: soon } }, page.live?.reference ?? "");
    draw(
      host,
      heading("playground", "Try your own text", "Type, and see how every tokenizer here cuts it. Nothing leaves this machine."),
      el(
        "div",
        { class: "live" },
        el("label", { class: "field wide" }, el("span", {}, "Text in any language"), text),
        el("label", { class: "field wide" }, el("span", {}, `The same in ${pivotWord()}, for the premium (optional)`), reference),
      ),
      status,
      shareButtons("playground", () => shared && pictureOfText(shared), () => textLink(text.value, reference.value)),
      result,
    );
    if (!readAddress().text) run();
  },
});
