"""Sign a bundle with a private key, and check with the public one that its owner signed it: OpenSSF Model Signing."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
from pathlib import Path
from typing import Any

from .._errors import BundleError, ExportError
from .._packages import needing
from .._places import check_place, unless_of_kind, unless_read
from .._whole_file import whole_file
from .folder import read_manifest

SUFFIX = ".sig"


def sign_bundle(path: str | Path, *, key: str | Path, signature: str | Path | None = None) -> Path:
    """Sign every file of a bundle, so that `verify_bundle(path, public_key=...)` can check who signed it.

    An existing signature is replaced; any other file is not.

    Args:
        path: The folder.
        key: A private key on the curve P-256, P-384 or P-521, as an unencrypted PEM file.
        signature: Where to write the signature; `None` for the bundle's name with `.sig`, beside it.

    Returns:
        Where the signature is.

    Raises:
        BundleError: As for `load_bundle`; an incomplete bundle is not signed.
        ExportError: The key cannot be used, the signature cannot be written, or `keras-attn[sign]` is not installed.
    """
    folder, target = Path(path), _place(Path(path), signature)
    read_manifest(folder)
    refusal = functools.partial(_unless_a_signature, key=key)
    check_place(target, refusal)
    config = _config(key, "private")
    with whole_file(target, refusal) as partial:
        config.sign(folder, partial)
    return target


def check_signature(path: str | Path, *, public_key: str | Path, signature: str | Path | None = None) -> None:
    """Check that the owner of a key signed the bundle as it is.

    Raises:
        BundleError: There is no such signature, or it is by another key or of something else.
        ExportError: The key cannot be used, or `keras-attn[sign]` is not installed.
    """
    folder, place = Path(path), _place(Path(path), signature)
    if not folder.is_dir():
        raise BundleError(f"No bundle at {folder}.")
    if not place.is_file():
        raise BundleError(f"{folder} is not signed: there is no {place}. A signature elsewhere needs to be named.")
    config = _config(public_key, "public")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it thinks of old signatures
            config.verify(folder, place)
    except Exception as error:
        # JSON, base64, pydantic and cryptography raise errors of their own on what is no signature, or a wrong one
        raise BundleError(
            f"{place} does not show that the owner of {public_key} signed {folder} as it is: {_reason(error)}."
        ) from error


def check_signature_if_asked(
    path: str | Path, public_key: str | Path | None, signature: str | Path | None = None
) -> None:
    """Check the signature where a key is given; without one there is nothing to check it with.

    Raises:
        ExportError: As for `check_signature`, or a signature is named without a key.
    """
    if public_key is not None:
        check_signature(path, public_key=public_key, signature=signature)
    elif signature is not None:
        raise ExportError("A signature is checked with a public key: give `public_key` (--public-key) as well.")


def _unless_a_signature(there: Path, *, key: str | Path) -> str | None:
    return unless_read(there, key) or unless_of_kind(there, "signature", _is_signature)


def _is_signature(content: bytes) -> bool:
    """Tell whether this is a bundle of Sigstore, which holds what was signed, and by which key."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"verificationMaterial", "dsseEnvelope"} <= found.keys()


def _place(folder: Path, signature: str | Path | None) -> Path:
    if signature is not None:
        return Path(signature)
    whole = Path(os.path.abspath(folder))  # so that it has a name, even if it was given as "."
    return whole.with_name(whole.name + SUFFIX)


def _config(key: str | Path, kind: str) -> Any:
    """Return what signs with a private key, or verifies with a public one."""
    with needing("sign", "Signing"):  # here: it takes seconds to import
        import model_signing.signing
        import model_signing.verifying
    library: Any = model_signing
    try:
        if kind == "private":
            return library.signing.Config().use_elliptic_key_signer(private_key=Path(key))
        return library.verifying.Config().use_elliptic_key_verifier(public_key=Path(key))
    except Exception as error:
        # the system, or whatever the library makes of a file that is no such key
        raise _unusable(key, kind, error) from error


def _unusable(key: str | Path, kind: str, error: Exception) -> ExportError:
    if isinstance(error, OSError):
        return ExportError(f"Cannot read the {kind} key {key}: {error.strerror}.")
    bare = ", without a password" if kind == "private" else ""
    said = f": {_reason(error)}" if isinstance(error, ValueError | TypeError) else ""  # not what fails on an RSA key
    return ExportError(f"{key} is no {kind} key on the curve P-256, P-384 or P-521 in PEM{bare}{said}.")


def _reason(error: Exception) -> str:
    """Return what the library says, without the digests and brackets of the list in which it names files."""
    said = " ".join(str(error).split()).partition(": Expected ")[0]
    said = re.sub(r"""\[['"]|['"]\]|\\""", "", said).rstrip(" .")
    kind = "" if said and type(error) is ValueError else type(error).__name__
    return ": ".join(filter(None, (kind, said)))
