"""Run the commands behind a recorded result again, and compare what they give with the record.

    python tools/rerun.py results/hardware/burmese.yaml MODEL=/models/qwen FLORES=/data/flores200

A record is a YAML file: `inputs` names what to give, `steps` are commands with `$NAME` for inputs,
each with the `seconds` it took. A step with a `table` (a CSV file of one row) has `expected`
values, which must come out within `tolerance`. Exit code 1 if one does not.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml


def main(record: Path, given: dict[str, str]) -> int:
    """Run every step in a new folder; the number of values that did not come out."""
    recorded = yaml.safe_load(record.read_text("utf-8"))
    if missing := sorted(recorded["inputs"].keys() - given.keys()):
        sys.exit("\n".join(f"give {name}=…: {recorded['inputs'][name]}" for name in missing))
    folder = Path(tempfile.mkdtemp(prefix="tokengraft-"))
    print(f"{recorded['what']}, recorded on {recorded['machine']}; here in {folder}", flush=True)
    wrong = 0
    for step in recorded["steps"]:
        print(f"$ {step['command']}", flush=True)
        begun = time.monotonic()
        environment = {**os.environ, **given}
        subprocess.run(step["command"], shell=True, cwd=folder, env=environment, check=True)
        then = f" (recorded: {step['seconds']})" if "seconds" in step else ""
        print(f"{time.monotonic() - begun:.0f} s{then}", flush=True)
        if "table" in step:
            wrong += compare(folder / step["table"], step["expected"], step["tolerance"])
    return wrong


def compare(table: Path, expected: dict[str, Any], tolerance: float) -> int:
    """Print each value beside the recorded one; how many differ by more than `tolerance`."""
    with table.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    wrong = 0
    for name, value in expected.items():
        apart = abs(float(row[name]) - value) > tolerance
        wrong += apart
        print(f"{'DIFFERS' if apart else 'ok':8}{name}: {float(row[name]):.6g}, recorded {value}")
    return wrong


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    inputs = dict(pair.split("=", 1) for pair in sys.argv[2:])
    inputs = {name: os.path.abspath(path) for name, path in inputs.items()}  # noqa: PTH100
    sys.exit(main(Path(sys.argv[1]), inputs) > 0)
