"""Signatures of graft folders, as OpenSSF model signing writes them: who made every file of it.

The hashes in a manifest show damage, not forgery: whoever edits a file can write its hash anew. A
signature cannot be written without the private key. `model.sig` is a Sigstore bundle over all other
files, and needs no network: https://github.com/ossf/model-signing-spec
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokengraft.core.errors import UsageError, optional
from tokengraft.model.folder import SIGNATURE

#: Not signed: the signature itself, and what a hub's client adds to a folder.
_IGNORED = (SIGNATURE, ".cache/huggingface")


def check_key(key: Path | str) -> None:
    """UsageError unless `key` is a private key that can sign; before hours of training."""
    serialization = optional("cryptography.hazmat.primitives.serialization", "Signing", "sign")
    optional("model_signing.signing", "Signing", "sign")
    curves = optional("cryptography.hazmat.primitives.asymmetric.ec", "Signing", "sign")
    try:
        private = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{key} cannot sign: {error}. {_HOW}") from None
    if not isinstance(private, curves.EllipticCurvePrivateKey):
        raise UsageError(f"{key} is no key on an elliptic curve, which signing needs. {_HOW}")


def sign(folder: Path, key: Path | str) -> None:
    """Write `model.sig`, a signature over every file of the folder by the private `key`."""
    signing = optional("model_signing.signing", "Signing", "sign")
    home = folder.resolve()
    config = signing.Config().use_elliptic_key_signer(private_key=Path(key))
    config.set_hashing_config(_hashing()).sign(home, home / SIGNATURE)


def signature_difference(folder: Path, key: Path | str) -> str | None:
    """Why the folder is not what the owner of the public `key` signed, in words, or None."""
    verifying = optional("model_signing.verifying", "Checking a signature", "sign")
    home = folder.resolve()
    if not (home / SIGNATURE).is_file():
        return f"there is no {SIGNATURE}: nobody signed this folder"
    try:
        config = verifying.Config().use_elliptic_key_verifier(public_key=Path(key))
    except (OSError, ValueError) as error:
        raise UsageError(f"{key} is no public key in PEM: {error}. {_HOW}") from None
    try:
        # The hub's cache links to its blobs; all other links are foreign (`verify.small_files`).
        hashing = _hashing().set_allow_symlinks(True)
        config.set_hashing_config(hashing).verify(home, home / SIGNATURE)
    except Exception as error:  # the library raises what its parsers and ciphers raise
        said = next(iter(str(error).splitlines()), "")[:300]
        return said or f"{SIGNATURE} was not written with this key ({type(error).__name__})"
    return None


def _hashing() -> Any:
    hashing = optional("model_signing.hashing", "Signing", "sign")
    return hashing.Config().set_ignored_paths(paths=_IGNORED, ignore_git_paths=True)


_HOW = (
    "Make a pair with: openssl ecparam -genkey -name prime256v1 -noout -out key.pem; "
    "openssl ec -in key.pem -pubout -out key.pub"
)
