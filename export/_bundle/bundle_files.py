"""File names of a bundle; finalize, read and recognize a bundle folder."""

import contextlib
import os
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .._errors import BundleError
from .._format.files import manifest_bytes, read_manifest_file, sha256
from .._format.manifest import Manifest, read_manifest
from .._format.names import CASES, MANIFEST, MODEL
from .._format.verify_script import verify_script
from .atomic_writes import old_path, restore_folder
from .output_paths import unless_a_folder
from .untrusted_input import check_external_data, check_files, read_json

SAVED_MODEL = "saved_model"
VERIFY = "verify.py"
_REQUIRED_FILES = (MODEL, CASES)  # in bundles of every schema version


def finalize_bundle(folder: Path, manifest: Manifest) -> None:
    """Add `verify.py`, hash every file, and write the manifest: the last step of writing a bundle."""
    (folder / VERIFY).write_text(verify_script(), encoding="utf-8", newline="\n")
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    hashes = {name: sha256(folder / name) for name in files}
    content = asdict(replace(manifest, sha256=hashes))
    (folder / MANIFEST).write_bytes(manifest_bytes(content))


def validate_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a bundle after checking every file.

    Raises:
        BundleError: As for `load_bundle`.
    """
    if folder.is_file():
        raise BundleError(f"No bundle at {folder}: it is a file, and a bundle is a folder.")
    check_files(folder)
    try:
        content = read_manifest(folder)
    except BundleError as error:
        if _is_step_decoder(folder):
            raise BundleError(
                f"{folder} is a decoder in steps, two bundles with a manifest around them, which is no longer read. "
                f"Load {folder / 'encoder'} and {folder / 'step'}; docs/whole-answers.md has a loop over them."
            ) from error
        raise
    check_external_data(folder / MODEL, content["sha256"])
    return content


def _is_step_decoder(folder: Path) -> bool:
    try:
        return read_manifest_file(folder).get("kind") == "decoder in steps"
    except (BundleError, OSError):
        return False  # the caller raises the error of this file


def must_be_replaceable(path: Path, *, overwrite: bool) -> str | None:
    """Return the objection to replacing a file or folder by a bundle, or `None`."""
    if objection := unless_a_folder(path, "A bundle is a folder"):
        return objection
    if not overwrite:
        return f"{path} already exists. Pass overwrite=True (--overwrite) to replace it."
    if not is_bundle(path) and any(path.iterdir()):
        return f"{path} is a folder that holds no bundle; it will not be replaced. Choose another place."
    return None


def restore_bundle(folder: Path) -> None:
    """Rename the `NAME.old` of a killed export back, also if nothing else of the export is left."""
    old = old_path(folder)
    if os.path.lexists(folder) or not is_bundle(old):
        return
    with contextlib.suppress(OSError):  # in a read-only folder, the caller finds no bundle
        inode = old.lstat().st_ino
        restore_folder(folder)  # waits for an export that is between its renames
        if not os.path.lexists(folder):
            old.rename(folder)
        if folder.lstat().st_ino == inode:
            warnings.warn(f"{folder} was missing and is restored: {old} was renamed to it.", stacklevel=3)


def is_bundle(folder: Path) -> bool:
    """Return whether a folder is a bundle, of any schema version, complete or damaged.

    Many programs write a `manifest.json`. That of a bundle has a schema version, and hashes of the ONNX model and the
    golden cases. If it is not JSON, these two files must exist.
    """
    try:
        manifest = read_json(folder / MANIFEST)
    except (OSError, BundleError):
        return False
    except ValueError:
        return all((folder / name).is_file() for name in _REQUIRED_FILES)
    hashes = manifest.get("sha256") if isinstance(manifest, dict) else None
    return isinstance(hashes, dict) and "schema_version" in manifest and all(name in hashes for name in _REQUIRED_FILES)
