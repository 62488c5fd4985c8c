"""`tokengraft playground`: the page on loopback with a box that tokenizes what is typed.

The server answers two requests: GET / and POST /tokenize. It reads no file on request, takes
bodies of bounded size, and refuses a request whose Host names anything but this machine, so that no
web page can reach it through a name that resolves to loopback (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import json
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tokengraft.core.errors import UsageError
from tokengraft.core.untrusted import parse_json
from tokengraft.corpus import udhr
from tokengraft.render.page.build import Runs, make_page
from tokengraft.render.page.samples import segment
from tokengraft.tokenizer import Located, Tokenizer, find
from tokengraft.tokenizer.catalog import BUNDLED

HOST, PORT = "127.0.0.1", 8181
BODY = 256_000  # bytes that a request may have
TEXT = 20_000  # characters that a text may have
_SHOWN = 3_000  # tokens that are sent back at most
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Refused(Exception):
    """Raised for a request that is refused, with the status and reason to answer."""

    status: HTTPStatus
    reason: str


class Tokenizers:
    """The tokenizers of the page, each opened when first used and kept."""

    def __init__(self, tokenizers: Sequence[tuple[Located, bool]]) -> None:
        self._tokenizers = tuple(tokenizers)
        self._lock = threading.Lock()
        self._opened: dict[int, Tokenizer] = {}

    def warm(self) -> None:
        """Open all of them."""
        for place in range(len(self._tokenizers)):
            self._get(place)

    def _get(self, place: int) -> Tokenizer:
        with self._lock:
            if place not in self._opened:
                self._opened[place] = self._tokenizers[place][0].open()
            return self._opened[place]

    def tokenize(self, text: str, reference: str) -> dict[str, Any]:
        """Each tokenizer's tokens for `text`, and its number of tokens for `reference`."""
        rows = []
        for place, (located, own) in enumerate(self._tokenizers):
            tokenizer = self._get(place)
            tokens = segment(tokenizer, [text])[0]
            rows.append(
                {
                    "label": located.label,
                    "own": own,
                    "count": len(tokens),
                    "characters": len(text),
                    "unknown": tokens.count(0),
                    "tokens": tokens[:_SHOWN],
                    "reference": len(tokenizer.encode([reference])[0]) if reference else None,
                }
            )
        return {"rows": rows, "reference": bool(reference)}


class Playground(ThreadingHTTPServer):
    """The server; `address` is what to open in a browser."""

    daemon_threads = True

    def __init__(self, host: str, port: int, html: bytes, tokenizers: Tokenizers) -> None:
        self.html, self.tokenizers, self.host = html, tokenizers, host
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Handler)

    @property
    def address(self) -> str:
        """The URL it listens on."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close the connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def admits(self, host: str | None) -> bool:
        """Whether a Host header names this machine and not a site that merely resolves to it."""
        name = (host or "").strip().lower()
        name = name[1 : name.find("]")] if name.startswith("[") else name.partition(":")[0]
        if name in ("localhost", self.host):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback or not is_loopback(self.host)
        except ValueError:
            return False


class Handler(BaseHTTPRequestHandler):
    """GET / and POST /tokenize, nothing else."""

    server: Playground
    server_version, sys_version = "tokengraft", ""
    timeout = 15

    def do_GET(self) -> None:
        """The page."""
        self._answer(self._page, "text/html; charset=utf-8")

    def do_POST(self) -> None:
        """The tokens of a text."""
        self._answer(self._tokens, "application/json")

    def _page(self) -> bytes:
        if self.path.partition("?")[0] not in ("/", "/index.html"):
            raise Refused(HTTPStatus.NOT_FOUND, "there is only /")
        return self.server.html

    def _tokens(self) -> bytes:
        if self.path != "/tokenize":
            raise Refused(HTTPStatus.NOT_FOUND, "there is only /tokenize")
        if self.headers.get_content_type() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
        origin = self.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != self.headers.get("Host"):
            raise Refused(HTTPStatus.FORBIDDEN, "asked from another site")
        text, reference = read_request(self.rfile.read(self._length()))
        return json.dumps(self.server.tokenizers.tokenize(text, reference)).encode("ascii")

    def _length(self) -> int:
        given = self.headers.get("Content-Length", "")
        if not given.isascii() or not given.isdigit():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        if len(given) > len(str(BODY)) or int(given) > BODY:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {BODY:,} bytes")
        return int(given)

    def _answer(self, make: Callable[[], bytes], kind: str) -> None:
        self.close_connection = True
        status = HTTPStatus.OK
        try:
            if not self.server.admits(self.headers.get("Host")):
                raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this is not the host asked for")
            body = make()
        except Refused as no:
            status, kind = no.status, "application/json"
            body = json.dumps({"error": no.reason}).encode("ascii")
        # The page's policy is in its head, but framing can be forbidden only by a header.
        policy = "frame-ancestors 'none'" if kind.startswith("text/html") else "default-src 'none'"
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Security-Policy": policy}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: what users type is private."""


def read_request(body: bytes) -> tuple[str, str]:
    """The two texts of a request; `Refused` if missing, too long or not valid Unicode."""
    try:
        value = parse_json(body)
        text, reference = value["text"], value.get("reference") or ""
        f"{text}{reference}".encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, 'send {"text": "…", "reference": "…"}') from error
    if not isinstance(text, str) or not isinstance(reference, str):
        raise Refused(HTTPStatus.BAD_REQUEST, "text and reference are strings")
    if max(len(text), len(reference)) > TEXT:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {TEXT:,} characters")
    return text, reference


def make_server(
    runs: Runs,
    own: Sequence[str] = (),
    *,
    host: str = HOST,
    port: int = PORT,
    bundled: Sequence[str] = BUNDLED,
    tokenizers: Sequence[Path] = (),
) -> Playground:
    """A server that listens but does not serve yet (call `serve`).

    `runs` are shown on the page, as by `make_page`; `own` are the user's tokenizers or grafts
    (folders, files, names), in addition to the `bundled` ones. `port` 0 picks any free one.
    """
    located = [(find(name, tokenizers), False) for name in bundled]
    located += [(find(name, tokenizers), True) for name in own]
    page = make_page(runs, tokenizers=tokenizers, live=example())
    try:
        server = Playground(host, port, page.html.encode("utf-8"), Tokenizers(located))
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port} ({error}); try another --port") from error
    return server


def example() -> dict[str, Any]:
    """The initial text of the playground: a Shan sentence and its English translation."""
    sentence = udhr.load(["shn_Mymr", "eng_Latn"])
    number = sentence.units.index("3.1")
    return {
        "limit": TEXT,
        "text": sentence.texts["shn_Mymr"][number],
        "reference": sentence.texts["eng_Latn"][number],
    }


def serve(server: Playground) -> None:
    """Serve until interrupted; a thread opens the tokenizers, so that the first answer is quick."""
    threading.Thread(target=server.tokenizers.warm, daemon=True).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
