"""Compare the ids of bpe.js, the browser's tokenizer, run by node, with Python's on all of UDHR.

    python tools/browser_ids.py [NAME…] > results/browser-playground/ids.json

The browser test compares a sample in Chromium; this compares every line of every translation, and
lines on which regular expression engines and Unicode tables are known to disagree.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from tokengraft.corpus import load
from tokengraft.render.page.browser_tokenizers import packed
from tokengraft.tokenizer import find

NAMES = ("gpt2", "claude-2.1", "olmo-2", "cl100k_base", "llama-3", "o200k_base", "rootstock")
TRICKY = [
    *("", " ", "  a  b ", "I'Ll don'T we'\u017f 'S\u017f", "a\u0085b\ufeffc", "x\r\n\r\n y\n"),
    *("12345 ١٢٣٤", "<|endoftext|> <EOT>a", "ﬁ ① Å", "🙂👩‍👩‍👧 e\u0301", "\u2028 \u3000x"),
    *("a" * 5000, "国" * 3000, "\t\t if (x) {\n\t\treturn;\n", "café naïve ÀÉ", "K\u212a'\u212a"),
]
RUN = """
const [fs, zlib] = [require("fs"), require("zlib")];
const [page, bytes] = [{}, (n) => n];
%s
const [lines, file, out] = process.argv.slice(2);
const tokenizer = new BytePairs(JSON.parse(zlib.gunzipSync(fs.readFileSync(file))));
const ids = JSON.parse(fs.readFileSync(lines)).map((line) => tokenizer.encode(line));
fs.writeFileSync(out, JSON.stringify(ids));
"""


def main(names: list[str]) -> None:
    """Print one entry per tokenizer: lines, tokens, how many lines differ."""
    corpus = load("udhr")
    lines = [line for code in corpus.languages for line in corpus.lines(code)] + TRICKY
    script = files("tokengraft.render.page") / "static" / "bpe.js"
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "run.js").write_text(RUN % script.read_text(encoding="utf-8"), encoding="utf-8")
        (folder / "lines.json").write_text(json.dumps(lines), encoding="utf-8")
        for name in names:
            located = find(name)
            (folder / "file.bin").write_bytes(packed(located))
            paths = [str(folder / part) for part in ("lines.json", "file.bin", "ids.json")]
            subprocess.run(["node", str(folder / "run.js"), *paths], check=True)
            ours = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
            theirs = [list(row) for row in located.open().encode(lines)]
            wrong = [n for n, row in enumerate(ours) if row != theirs[n]]
            found[name] = {
                "sha256": located.fingerprint,
                "lines": len(lines),
                "tokens": sum(map(len, theirs)),
                "different": len(wrong),
                "first": [lines[n][:80] for n in wrong[:5]],
            }
    json.dump(found, sys.stdout, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:] or list(NAMES))
