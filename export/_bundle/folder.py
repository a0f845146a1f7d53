"""The folder of a bundle: what is in it, how it is sealed, and how its manifest is read."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import BundleError
from .._standalone import verify

REPORT = "parity/report.json"
SAVED_MODEL = "saved_model"
VERIFY = "verify.py"


def seal(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Add `verify.py`, hash every file, and write the manifest: the last step of writing a bundle."""
    shutil.copyfile(verify.__file__, folder / VERIFY)
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    hashes = {name: verify.sha256(folder / name) for name in files}
    content = {"schema_version": verify.SCHEMA_VERSION, **manifest, "sha256": hashes}
    (folder / verify.MANIFEST).write_bytes(verify.manifest_bytes(content))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a bundle after checking every file.

    Raises:
        BundleError: As for `load_bundle`.
    """
    try:
        return verify.read_manifest(folder)
    except BundleError as error:
        if _is_in_steps(folder):
            raise BundleError(
                f"{folder} is a decoder in steps, two bundles with a manifest around them, which is no longer read. "
                f"Load {folder / 'encoder'} and {folder / 'step'}; docs/whole-answers.md has a loop over them."
            ) from error
        raise


def _is_in_steps(folder: Path) -> bool:
    try:
        return verify.opened_manifest(folder).get("kind") == "decoder in steps"
    except (BundleError, OSError):
        return False  # what is wrong with it has been said
