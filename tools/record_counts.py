"""Record hashes of the reference libraries' counts of the bundled text, for `auditing.recorded`.

    python tools/record_counts.py --tokenizers paper-ten.tar.xz --tokenizers modern.tar.xz

A row for each tokenizer of the catalog that is found: eight hexadecimal digits of its hash, then
eight for the counts of each language. The first row has those of the languages' texts. No faster
library is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tokengraft.auditing.count import count
from tokengraft.auditing.recorded import RECORDED, short, text_hash
from tokengraft.core.errors import Unavailable
from tokengraft.core.files import write_text
from tokengraft.corpus import udhr
from tokengraft.tokenizer import find
from tokengraft.tokenizer.catalog import ENTRIES


def main() -> None:
    """Write the file anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    options = parser.parse_args()
    corpus = udhr.load()
    digests = {code: corpus.digest(code) for code in corpus.languages}
    rows = ["texts\t" + "".join(map(text_hash, digests.values()))]
    for entry in ENTRIES:
        try:
            located = find(entry.name, options.tokenizers)
        except Unavailable:
            print(f"left out: {entry.name}")
            continue
        tokenizer = located.open()
        tokenizer.by_reference()
        made = (short(digests[c], count(tokenizer, corpus.lines(c))) for c in corpus.languages)
        rows.append(f"{located.fingerprint[:8]}\t" + "".join(made))
        print(entry.name, flush=True)
    write_text(RECORDED, "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
