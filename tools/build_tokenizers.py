"""Bundle the paper's tokenizers: raw files → `assets/tokenizers/NAME/FILE.xz` and `SHA256SUMS`.

Usage: python tools/build_tokenizers.py FOLDER, where FOLDER has a folder per tokenizer. NOTICE.md
names the package that each file comes from; files that may not be redistributed are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
from pathlib import Path

ASSETS = Path(__file__).parents[1] / "src/tokengraft/assets/tokenizers"
FILES = {
    "bert-multilingual": ["vocab.txt", "tokenizer_config.json"],
    "claude-2.1": ["tokenizer.json", "tokenizer_config.json"],
    "cl100k_base": ["cl100k_base.tiktoken"],
    "gpt2": ["vocab.json", "merges.txt", "tokenizer_config.json"],
    "llama-3": ["tokenizer.json", "tokenizer_config.json"],
    "mistral-v0.3": ["tokenizer.model", "tokenizer_config.json"],
    "o200k_base": ["o200k_base.tiktoken"],
    "olmo-2": ["tokenizer.json", "tokenizer_config.json"],
    "t5": ["spiece.model", "tokenizer_config.json"],
}


def main() -> None:
    """Compress each file and write the list of their raw hashes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    sums = []
    for name, files in FILES.items():
        for file in files:
            data = (folder / name / file).read_bytes()
            target = ASSETS / name / f"{file}.xz"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
            sums.append(f"{hashlib.sha256(data).hexdigest()}  {name}/{file}\n")
    (ASSETS / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()
