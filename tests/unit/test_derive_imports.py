"""What can be imported without torch, and what says that it is missing."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
sys.modules["torch"] = None
sys.modules["transformers"] = None
from tokengraft.core.errors import MissingExtra
from tokengraft.deriving.derive import derive_rows
from tokengraft.deriving.methods import mean
from tokengraft.paper import linear, neighbours
from tokengraft.deriving.known_methods import METHODS
try:
    derive_rows(".", [[1]])
except MissingExtra as error:
    assert "tokengraft[model]" in str(error)
    print("fine")
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_arrays_need_no_torch_and_models_say_so():
    assert run(CODE).strip() == "fine"


def test_importing_deriving_is_light():
    code = "import sys, tokengraft.deriving; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    assert run(code).strip() == "[]"
