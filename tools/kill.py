"""Kill commands with SIGKILL at drawn moments: nothing half-written, and the next run is the same.

    python tools/kill.py --moments 10 --out kill.json

Audit, plan, graft (trained, with --work), evaluate and export run undisturbed, twice, to learn how
long they take and which of their files are the same each time. Then each is killed, with all its
children, at moments drawn over that time; every second time there is an earlier result at --out.
What is at --out must then be that earlier result, nothing, or all of the new one; and the same
command, run again with the same cache and --work, must end well and write the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy  # noqa: F401 - imported once, before the forks
import polars  # noqa: F401
import torch  # noqa: F401
import transformers  # noqa: F401

from tokengraft.cli import main
from tokengraft.core.files import sha256_file
from tokengraft.corpus import udhr


def commands(place: Path) -> dict[str, list[str]]:
    """Each verb, without its --out; `place` holds what they read."""
    text = str(place / "text.txt")
    return {
        "audit": ["audit", "udhr", "-l", "shn", "-t", "gpt2"],
        "plan": ["plan", "rootstock", "-l", "shn", "--text", text, "--budget", "20"],
        "graft": ["graft", "rootstock", str(place / "plan"), "--text", text, "--steps", "6",
                  "--work", str(place / "work")],
        "evaluate": ["evaluate", "rootstock", str(place / "grafted"), "-l", "shn", "--lines", "6"],
        "export": ["export", str(place / "grafted"), "--unchecked"],
    }  # fmt: skip


def run(command: list[str], out: Path, after: float | None = None) -> tuple[int, float]:
    """The command's exit code and seconds; with `after`, it and its children are killed then.

    It runs in a fork of this process, which has imported everything and used nothing of it.
    """
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(out.parent)
        with Path(os.devnull).open("r+b") as nowhere, (out.parent / "said.txt").open("wb") as said:
            for number, file in enumerate((nowhere, nowhere, said)):
                os.dup2(file.fileno(), number)
        sys.argv = ["tokengraft", *command, "--out", str(out), "--force"]
        code: Any = 1
        try:
            main.run()
            code = 0
        except SystemExit as end:
            code = end.code
        finally:
            os._exit(code if isinstance(code, int) else int(bool(code)))
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if after is not None and time.monotonic() - started >= after:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL, time.monotonic() - started
        time.sleep(0.002)
    if ended[1] and after is None:
        print((out.parent / "said.txt").read_text("utf-8")[-900:], flush=True)
    return os.waitstatus_to_exitcode(ended[1]), time.monotonic() - started


def hashes(out: Path) -> dict[str, str]:
    """The hash of every file that is there, by its name; hidden ones are not the result's."""
    if out.is_file():
        return {"": sha256_file(out)}
    files = sorted(path for path in out.rglob("*") if path.is_file())
    names = {path.relative_to(out).as_posix(): path for path in files}
    return {name: sha256_file(path) for name, path in names.items() if name[0] != "."}


def same(a: dict[str, str], b: dict[str, str], stable: set[str]) -> bool:
    """Whether both hold the same files, and those of them that are stable are equal."""
    return a.keys() == b.keys() and all(a[name] == b[name] for name in stable)


def attack(verb: str, command: list[str], place: Path, moments: list[float]) -> dict[str, Any]:
    """Kill one verb at each moment (as a share of its time) and run it again."""
    out = place / f"{verb}.gguf" if verb == "export" else place / verb
    cache, work = place / f"cache-{verb}", place / "work"
    os.environ["TOKENGRAFT_CACHE"] = str(cache)
    runs, seconds, earlier = [], 0.0, place / f"earlier-{verb}"
    for _ in range(2):
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(cache, ignore_errors=True)
        code, seconds = run(command, out)
        assert code == 0, f"{verb} ends with {code} undisturbed"
        runs.append(hashes(out))
        remove(earlier)
        out.rename(earlier)
    expected = runs[0]
    stable = {name for name in expected if expected[name] == runs[1].get(name)}
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    hidden = kept = 0
    for number, share in enumerate(moments):
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(cache, ignore_errors=True)
        before: dict[str, str] = {}
        if number % 2:  # an earlier result, one file of which is another
            restore(earlier, out)
            with (out if out.is_file() else out / min(stable)).open("ab") as file:
                file.write(b"earlier")
            before = hashes(out)
        code, _ = run(command, out, share * seconds)
        left = hashes(out)
        if left == before:
            ends["as it was before" if before else "nothing there"] += 1
        elif same(left, expected, stable):
            ends["whole" if code else "whole, not killed"] += 1
        else:
            wrong.append(f"{verb}, moment {number} ({share:.3f}): half-written: {sorted(left)}")
        hidden += litter(out)
        code, _ = run(command, out)
        kept += litter(out)
        if code or not same(hashes(out), expected, stable):
            differ = sorted(n for n in stable if hashes(out).get(n) != expected[n])
            wrong.append(f"{verb}, moment {number} ({share:.3f}): run again: {code}, {differ}")
        remove(out)
    return {
        "seconds": round(seconds, 1), "moments": [round(share, 3) for share in moments],
        "ends": dict(ends), "files": len(expected), "same each time": len(stable),
        "temporary names left": hidden, "after the next run": kept, "findings": wrong,
    }  # fmt: skip


def restore(earlier: Path, out: Path) -> None:
    """Copy an earlier result to `out`."""
    copy: Any = shutil.copyfile if earlier.is_file() else shutil.copytree
    copy(earlier, out)


def remove(out: Path) -> None:
    """Delete a result."""
    if out.is_file():
        out.unlink()
    shutil.rmtree(out, ignore_errors=True)


def litter(out: Path) -> int:
    """How many hidden files and folders lie beside and in a result."""
    places = [out.parent, *([out] if out.is_dir() else [])]
    return sum(path.name.startswith(".") for place in places for path in place.iterdir())


def attack_all() -> int:
    """Kill every verb; exit 1 if something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--moments", type=int, default=10, help="kills of each verb")
    parser.add_argument("--only", help="verbs, with commas between")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, help="moments, ends and findings as JSON")
    given = parser.parse_args()
    draw, told = random.Random(given.seed), dict[str, Any]()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        lines = udhr.load(["shn"]).lines("shn_Mymr")[:60]
        (place / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        verbs = commands(place)
        for verb, name in (("plan", "plan"), ("graft", "grafted")):
            code, _ = run(verbs[verb], place / name)
            assert code == 0, f"{verb} ends with {code}"
        (place / "plan").rename(place / "planned")
        verbs["graft"][2] = str(place / "planned")
        for verb, command in verbs.items():
            if verb not in (given.only or verb).split(","):
                continue
            moments = [draw.uniform(0.2, 1.0) for _ in range(given.moments)]
            told[verb] = attack(verb, command, place, moments)
            print(verb, json.dumps(told[verb]["ends"]), *told[verb]["findings"], sep="\n  ")
            sys.stdout.flush()
            if given.out:
                given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 1 if any(one["findings"] for one in told.values()) else 0


if __name__ == "__main__":
    sys.exit(attack_all())
