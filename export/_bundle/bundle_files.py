"""Files of a bundle folder: finalize, validate, restore and recognize it."""

import contextlib
import os
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .._errors import BundleError
from .._format.files import manifest_bytes, read_manifest_file, sha256
from .._format.manifest import Manifest, read_manifest
from .._format.names import CASES_FILE, MANIFEST, MODEL
from .._format.verify_script import verify_script
from .atomic_writes import old_path, restore_folder
from .output_paths import find_folder_objection
from .untrusted_input import check_external_data, check_files, read_json

SAVED_MODEL_FOLDER = "saved_model"
VERIFY_SCRIPT = "verify.py"
_REQUIRED_FILES = (MODEL, CASES_FILE)  # in bundles of every schema version


def finalize_bundle(folder: Path, manifest: Manifest) -> None:
    """Write `verify.py`, the hash of every file and the manifest, as the last step of writing a bundle."""
    (folder / VERIFY_SCRIPT).write_text(verify_script(), encoding="utf-8", newline="\n")
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    hashes = {name: sha256(folder / name) for name in files}
    content = asdict(replace(manifest, sha256=hashes))
    (folder / MANIFEST).write_bytes(manifest_bytes(content))


def validate_manifest(folder: Path) -> dict[str, Any]:
    """Check every file of a bundle and return its manifest, or raise the `BundleError` of `load_bundle`."""
    if folder.is_file():
        raise BundleError(f"No bundle at {folder}: it is a file, and a bundle is a folder.")
    check_files(folder)
    try:
        content = read_manifest(folder)
    except BundleError as error:
        if _is_step_decoder(folder):
            raise BundleError(
                f"{folder} has the removed format `decoder in steps`, with one bundle for the encoder and one for the "
                f"step. Load {folder / 'encoder'} and {folder / 'step'}; docs/whole-answers.md has a loop over them."
            ) from error
        raise
    check_external_data(folder / MODEL, content["sha256"])
    return content


def _is_step_decoder(folder: Path) -> bool:
    try:
        return read_manifest_file(folder).get("kind") == "decoder in steps"
    except (BundleError, OSError):
        return False


def find_overwrite_objection(path: Path, *, overwrite: bool) -> str | None:
    """Return a message if `path` must not be replaced by a bundle, else `None`."""
    if objection := find_folder_objection(path, "A bundle is a folder"):
        return objection
    if not overwrite:
        return f"{path} already exists. Pass overwrite=True (--overwrite) to replace it."
    if not is_bundle(path) and any(path.iterdir()):
        return f"{path} is a folder that holds no bundle; it will not be replaced. Choose another path."
    return None


def restore_bundle(folder: Path) -> None:
    """Rename the `NAME.old` of a killed export back to `folder`, even if its temporary folder is gone."""
    old = old_path(folder)
    if os.path.lexists(folder) or not is_bundle(old):
        return
    with contextlib.suppress(OSError):  # in a read-only folder, the caller raises that the bundle is missing
        inode = old.lstat().st_ino
        restore_folder(folder)  # waits for an export between its two renames
        if not os.path.lexists(folder):
            old.rename(folder)
        if folder.lstat().st_ino == inode:
            warnings.warn(f"{folder} was missing and is restored: {old} was renamed to it.", stacklevel=3)


def is_bundle(folder: Path) -> bool:
    """Return True if a folder is a bundle, of any schema version, complete or damaged."""
    # Many programs write a `manifest.json`. The manifest of a bundle has a schema version and hashes of the ONNX model
    # and the golden cases. If the manifest is damaged, these two files must exist.
    try:
        manifest = read_json(folder / MANIFEST)
    except (OSError, BundleError):
        return False
    except ValueError:
        return all((folder / name).is_file() for name in _REQUIRED_FILES)
    hashes = manifest.get("sha256") if isinstance(manifest, dict) else None
    return isinstance(hashes, dict) and "schema_version" in manifest and all(name in hashes for name in _REQUIRED_FILES)
