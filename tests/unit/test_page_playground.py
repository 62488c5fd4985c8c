"""The playground's server: what it answers, and all that it refuses."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tokengraft.api.report import collect
from tokengraft.core.errors import TokenizerError, UsageError
from tokengraft.render.page.playground import BODY, TEXT, Playground, is_loopback, make_server


@pytest.fixture(scope="module")
def server() -> Iterator[Playground]:
    found = make_server(collect([]), own=["cl100k_base"], bundled=["gpt2"], port=0)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


def ask(
    server: Playground, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes, http.client.HTTPResponse]:
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    given = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, data, given)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer


def test_tokenize(server: Playground) -> None:
    status, body, answer = ask(server, "POST", "/tokenize", {"text": "Hi ၵ", "reference": "Hi"})
    assert status == 200 and answer.headers["X-Content-Type-Options"] == "nosniff"
    first, second = json.loads(body)["rows"]
    assert (first["label"], first["own"], first["count"], first["reference"]) == (
        "GPT-2/3", False, 4, 1
    )  # fmt: skip
    assert second["own"] and first["tokens"][0] == "Hi"


def test_page(server: Playground) -> None:
    status, body, answer = ask(server, "GET", "/")
    assert status == 200 and b"connect-src &#x27;self&#x27;" in body
    assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Python" not in answer.headers["Server"]
    assert b"<title>How tokenizers cut your text</title>" in body
    assert b'font-family: "tg-Mymr"' in body and b'font-family: "tg-Taml"' in body


@pytest.mark.parametrize("path", ["/etc/passwd", "/../../etc/passwd", "/static/dom.js", "/x"])
def test_no_files(server: Playground, path: str) -> None:
    assert ask(server, "GET", path)[0] == 404
    assert ask(server, "POST", path, {"text": ""})[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_rebinding_is_refused(server: Playground, host: str) -> None:
    assert ask(server, "GET", "/", Host=host)[0] == 421
    assert ask(server, "POST", "/tokenize", {"text": "a"}, Host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8181"])
def test_this_machine_is_admitted(server: Playground, host: str) -> None:
    assert ask(server, "GET", "/", Host=host)[0] == 200


def test_other_sites_are_refused(server: Playground) -> None:
    body = {"text": "a"}
    assert ask(server, "POST", "/tokenize", body, Origin="https://evil.example")[0] == 403
    assert ask(server, "POST", "/tokenize", body, Content_Type="text/plain")[0] == 415
    port = server.server_address[1]
    assert ask(server, "POST", "/tokenize", body, Origin=f"http://127.0.0.1:{port}")[0] == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"text": 1}', b'{"text": "\\ud800"}', b"\xff", b"[" * 90_000],
)
def test_broken_requests(server: Playground, body: bytes) -> None:
    status, answer, _ = ask(server, "POST", "/tokenize", body)
    assert status == 400 and "error" in json.loads(answer)


def test_size_is_limited(server: Playground) -> None:
    assert ask(server, "POST", "/tokenize", {"text": "a" * (TEXT + 1)})[0] == 413
    assert ask(server, "POST", "/tokenize", b"", Content_Length=str(BODY + 1))[0] == 413
    assert ask(server, "POST", "/tokenize", b"", Content_Length="-1")[0] == 411
    status, body, _ = ask(server, "POST", "/tokenize", {"text": "ၵ" * TEXT})
    row = json.loads(body)["rows"][0]
    assert status == 200 and row["count"] > len(row["tokens"])


def test_other_methods(server: Playground) -> None:
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert ask(server, method, "/tokenize")[0] == 501


def test_loopback_by_default(server: Playground) -> None:
    assert server.server_address[0] == "127.0.0.1" and server.address.startswith("http://127.0.0.1")
    assert is_loopback("127.0.0.1") and is_loopback("::1") and not is_loopback("0.0.0.0")


def test_what_cannot_start() -> None:
    with pytest.raises(TokenizerError, match="No tokenizer"):
        make_server(collect([]), own=["absent"], bundled=[], port=0)
    taken = make_server(collect([]), bundled=["gpt2"], port=0)
    with pytest.raises(UsageError, match="cannot listen"):
        make_server(collect([]), bundled=["gpt2"], port=taken.server_address[1])
    taken.server_close()


def test_a_length_that_is_no_length(server: Playground, capfd: pytest.CaptureFixture[str]) -> None:
    for length in ("9" * 5000, str(BODY + 1)):
        status, body, _ = ask(server, "POST", "/tokenize", b"{}", Content_Length=length)
        assert status == 413 and b"at most" in body
    assert "Traceback" not in capfd.readouterr().err


def test_a_browser_that_goes_away_is_no_error(
    server: Playground, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", server.server_address[1])) as client:
        client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    assert ask(server, "GET", "/")[0] == 200
    assert "Traceback" not in capfd.readouterr().err
