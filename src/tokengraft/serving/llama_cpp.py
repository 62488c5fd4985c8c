"""Runs llama.cpp's server in a separate process and talks to it over HTTP.

`llama-server` is used if it is on the PATH, since that is what the user serves with; otherwise the
same server from the `xllamacpp` package, a wheel that includes libllama. Only the server's own
interface is used (`/health`, `/props`, `/tokenize`, `/completion`), so any recent build will do.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tokengraft.core.errors import MissingExtra, TokengraftError

_PATIENCE = 300.0  # seconds to wait for a model to load, or for an answer
_HOST = """
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.port, p.n_ctx, p.n_parallel, p.warmup = sys.argv[1], int(sys.argv[2]), \
    int(sys.argv[3]), int(sys.argv[5]), False
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(sys.argv[4])
p.n_gpu_layers, p.use_jinja = 0, sys.argv[6] == "chat"
server = xllamacpp.Server(p)
sys.stdin.read()
"""


class LlamaError(TokengraftError):
    """llama.cpp failed to load a file or to answer; the message ends with what it reported."""


def installed() -> str | None:
    """Which llama.cpp would be run: a path, `xllamacpp`, or None."""
    server = shutil.which("llama-server")
    if server:
        return server
    return "xllamacpp" if importlib.util.find_spec("xllamacpp") else None


class Llama:
    """A running server."""

    def __init__(self, port: int, child: subprocess.Popen[bytes], log: Path) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
        self._port, self._child, self._log = port, child, log

    def again(self) -> Llama:
        """The same server over a new connection, for concurrent requests."""
        return Llama(self._port, self._child, self._log)

    def tokenize(self, text: str, frame: bool = False) -> list[int]:
        """The ids of a text; with `frame`, including the special tokens that a prompt gets."""
        asked = {"content": text, "add_special": frame, "parse_special": True}
        return [int(number) for number in self._post("/tokenize", asked)["tokens"]]

    def complete(
        self, prompt: Sequence[int], count: int, temperature: float = 0.0
    ) -> dict[str, Any]:
        """The server's answer to a prompt of ids: `tokens`, `content`, `timings`."""
        asked = {
            "prompt": list(prompt), "n_predict": count, "temperature": temperature, "seed": 0,
            "return_tokens": True, "cache_prompt": False, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
        }  # fmt: skip
        return self._post("/completion", asked)

    def version(self) -> str:
        """The name and build of the program, as the server reports it."""
        self._connection.request("GET", "/props")
        props: dict[str, Any] = json.loads(self._connection.getresponse().read())
        build = props.get("build_info", "unknown")
        if "unknown" in build and installed() == "xllamacpp":
            return f"xllamacpp {metadata.version('xllamacpp')}"
        return f"llama.cpp {build}"

    def ready(self) -> bool:
        """Whether the model is loaded; LlamaError if the server has exited instead."""
        if self._child.poll() is not None:
            raise LlamaError(f"llama.cpp ended while loading: {self.said()}")
        try:
            self._connection.request("GET", "/health")
            answer = self._connection.getresponse()
            answer.read()
        except OSError:
            self._connection.close()
            return False
        return answer.status == 200

    def said(self) -> str:
        """The first error in the server's log, from which others follow, or else its last line."""
        lines = self._log.read_text("utf-8", errors="replace").strip().splitlines()
        wrong = [line for line in lines if "error" in line.lower() or "exception" in line.lower()]
        return (wrong or lines[-1:] or ["nothing"])[0].strip()[:300]

    def _post(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(value)
        try:
            self._connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise LlamaError(f"llama.cpp stopped answering ({error}): {self.said()}") from error
        if answer.status != 200:
            raise LlamaError(f"llama.cpp refused {path}: {data[:300].decode(errors='replace')}")
        answered: dict[str, Any] = json.loads(data)
        return answered


@contextlib.contextmanager
def serving(
    model: Path, *, context: int = 512, threads: int = 1, slots: int = 1, chat: bool = False
) -> Iterator[Llama]:
    """A server for the file `model` that is stopped at the end of the block.

    `slots` requests at a time share its `context`. The chat template is read only if `chat`, since
    llama.cpp exits at one that it cannot parse. Raises MissingExtra if no llama.cpp is installed,
    LlamaError if it cannot load the file.
    """
    program = installed()
    if program is None:
        raise MissingExtra("Running llama.cpp", "serve")
    port = _free_port()
    if program == "xllamacpp":
        numbers = map(str, (port, context, threads, slots))
        command = [sys.executable, "-c", _HOST, str(model), *numbers, "chat" if chat else ""]
    else:
        command = [
            program, "-m", str(model), "--port", str(port), "-c", str(context), "-t", str(threads),
            "-np", str(slots), "--no-warmup", "-ngl", "0", "--jinja" if chat else "--no-jinja",
        ]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        with log.open("wb") as written:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=written, stderr=subprocess.STDOUT
            )
        try:
            llama = Llama(port, child, log)
            deadline = time.monotonic() + _PATIENCE
            while not llama.ready():
                if time.monotonic() > deadline:
                    raise LlamaError(f"llama.cpp did not load {model.name}: {llama.said()}")
                time.sleep(0.02)
            yield llama
        finally:
            child.kill()
            child.wait()
            if child.stdin:
                child.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
