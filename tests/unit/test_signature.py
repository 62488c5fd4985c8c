"""Signed grafts: who holds the key made every file, and nobody else can."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokengraft as tg
from helpers.tiny_models import copy, edit, make, plan
from tokengraft.core.errors import UsageError
from tokengraft.grafting.manifest import file_hashes
from tokengraft.grafting.signature import signature_difference

pytest.importorskip("model_signing.signing", reason="the extra `sign` is not installed")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two pairs, and a private key of another kind."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    place, made = tmp_path_factory.mktemp("keys"), {}
    for name in ("mine", "other", "rsa"):
        key: Any = ec.generate_private_key(ec.SECP256R1())
        if name == "rsa":
            key = rsa.generate_private_key(65537, 2048)
        plain = form.PrivateFormat.PKCS8, form.NoEncryption()
        made[name], made[f"{name}.pub"] = place / name, place / f"{name}.pub"
        made[name].write_bytes(key.private_bytes(form.Encoding.PEM, *plain))
        public = form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
        made[f"{name}.pub"].write_bytes(key.public_key().public_bytes(*public))
    return made


@pytest.fixture(scope="module")
def made(keys: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("signed")
    base = make(place / "base", "llama-untied")
    tg.graft(base, plan(), place / "graft", check=["hello"], sign=keys["mine"])
    return base, place / "graft"


def edit_and_hash(folder: Path) -> None:
    """What a manifest cannot show: another config, and its hash written anew."""
    edit(folder / "config.json", lambda value: {**value, "note": "x"})
    edit(folder / "tokengraft.json", lambda value: {**value, "files": file_hashes(folder)})


EDITS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "a file and its hash": ("config.json", edit_and_hash),
    "the card": ("README.md", lambda folder: (folder / "README.md").write_text("mine")),
    "a file more": ("curve.png", lambda folder: (folder / "curve.png").write_text("x")),
    "a file less": ("LICENSE", lambda folder: (folder / "LICENSE").unlink()),
    "the signature": ("", lambda folder: edit(
        folder / "model.sig", lambda value: value["dsseEnvelope"].update(payload="e30="))),
    "no signature": ("nobody signed", lambda folder: (folder / "model.sig").unlink()),
    "no JSON": ("", lambda folder: (folder / "model.sig").write_text("{")),
}  # fmt: skip


def test_a_signed_graft_is_verified_by_the_public_key(
    tokengraft: Any, keys: dict[str, Path], made: tuple[Path, Path], tmp_path: Path
) -> None:
    base, folder = made
    asked = "verify", folder, "--base", base, "--json", "--key"
    done = tokengraft(*asked, keys["mine.pub"])
    checks = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert checks[0]["name"] == "signature" and "mine.pub signed it" in checks[0]["detail"]
    assert tokengraft(*asked, keys["other.pub"]).returncode == 3
    shared = copy(folder, tmp_path / "shared")  # as a hub gives it back
    for name in (".gitattributes", ".cache/huggingface/download/x.metadata"):
        (shared / name).parent.mkdir(parents=True, exist_ok=True)
        (shared / name).write_text("x")
    assert tg.verify(shared, base, ["hello"], key=keys["mine.pub"]).passed
    assert tg.verify(shared, base, ["hello"]).passed  # without a key, hashes alone are checked


@pytest.mark.parametrize("what", EDITS)
def test_what_the_key_did_not_sign_is_seen(
    what: str, keys: dict[str, Path], made: tuple[Path, Path], tmp_path: Path
) -> None:
    message, change = EDITS[what]
    folder = copy(made[1], tmp_path / "graft")
    change(folder)
    wrong = signature_difference(folder, keys["mine.pub"])
    assert wrong is not None and message in wrong


def test_a_graft_in_the_cache_of_a_hub(
    keys: dict[str, Path], made: tuple[Path, Path], tmp_path: Path
) -> None:
    snapshot, blobs = tmp_path / "m" / "snapshots" / "main", tmp_path / "m" / "blobs"
    copy(made[1], snapshot)
    blobs.mkdir()
    for path in snapshot.iterdir():
        path.rename(blobs / path.name)
        path.symlink_to(blobs / path.name)
    assert signature_difference(snapshot, keys["mine.pub"]) is None


def test_the_field_s_own_program_reads_the_signature(
    keys: dict[str, Path], made: tuple[Path, Path]
) -> None:
    command = [sys.executable, "-m", "model_signing", "verify", "key", str(made[1]),
               "--signature", str(made[1] / "model.sig"), "--public_key"]  # fmt: skip
    ran = [
        subprocess.run([*command, str(keys[name])], capture_output=True, text=True, check=False)
        for name in ("mine.pub", "other.pub")
    ]
    assert ran[0].returncode == 0, ran[0].stderr
    assert ran[1].returncode != 0


@pytest.mark.parametrize("name", ["rsa", "mine.pub", "nothing"])
def test_a_key_that_cannot_sign_is_told_before_training(
    name: str, keys: dict[str, Path], made: tuple[Path, Path], tmp_path: Path
) -> None:
    key = keys.get(name, tmp_path / name)
    with pytest.raises(UsageError, match=r"cannot sign|no key on an elliptic curve"):
        tg.graft(made[0], plan(), tmp_path / "out", check=["hello"], sign=key)
    assert not (tmp_path / "out").exists()
    if name != "mine.pub":
        with pytest.raises(UsageError, match="no public key in PEM"):
            signature_difference(made[1], key)
