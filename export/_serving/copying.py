"""Copy files of a bundle, and see that the copies are what the manifest says."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from .._bundle.folder import SAVED_MODEL
from .._errors import BundleError
from .._loaded_bundle import Bundle
from .._standalone import verify


def onnx_files(bundle: Bundle) -> dict[str, str]:
    """Return the ONNX file and its external data, each under its own name: the one finds the other by that."""
    return {name: name for name in bundle.entries.sha256 if name.startswith(verify.MODEL)}


def saved_model_files(bundle: Bundle) -> dict[str, str]:
    """Return the files of the SavedModel, without the folder's name."""
    prefix = f"{SAVED_MODEL}/"
    return {name: name.removeprefix(prefix) for name in bundle.entries.sha256 if name.startswith(prefix)}


def copy_files(bundle: Bundle, names: Mapping[str, str], folder: Path) -> None:
    """Copy files of a bundle into `folder`, under other names.

    The copies are hashed, not the files: another bundle may be put there meanwhile.

    Raises:
        BundleError: A copy is not the file of the manifest.
    """
    hashes = bundle.entries.sha256
    for name, new in names.items():
        copy = folder / new
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(bundle.path / name, copy)
        except FileNotFoundError as error:
            raise BundleError(
                f"{bundle.path / name} is gone since it was checked. Lay the bundle out again."
            ) from error
        if verify.sha256(copy) != hashes[name]:
            raise BundleError(f"{bundle.path / name} was replaced since it was checked. Lay the bundle out again.")
