"""The file beside the bundles that says what each is: `index.json`. The standard library and NumPy alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from .kinds import Arrays

INDEX = "index.json"
VERSION = 1

Entry = dict[str, Any]
Row = dict[str, Any]


class FolderError(Exception):
    """A folder of bundles cannot be read."""


def read_index(folder: Path) -> list[Entry]:
    """The entries of the index, of bundles that are there and of plans that none came of.

    Raises:
        FolderError: There is no folder, no index in it, or none of this version.
    """
    if not folder.is_dir():
        raise FolderError(f"There is no folder {folder}.")
    path = folder / INDEX
    if not path.is_file():
        raise FolderError(f"There are no bundles in {folder}: it has no {INDEX}. scripts/gpu-bundles writes them.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, entries = content["version"], content["bundles"]
    except (ValueError, KeyError, TypeError) as error:
        raise FolderError(f"{path} is no index of bundles. Write them anew: scripts/gpu-bundles.") from error
    if version != VERSION:
        raise FolderError(f"{path} has version {version}, and this is version {VERSION}. Write the bundles anew.")
    return list(entries)


def write_index(folder: Path, entries: list[Entry]) -> None:
    """Write the index so that it is whole or the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{INDEX}.part"
    draft.write_text(json.dumps({"version": VERSION, "bundles": entries}, indent=1) + "\n", encoding="utf-8")
    draft.replace(folder / INDEX)


def weights_file(folder: Path, name: str) -> Path:
    """Where the weights of a bundle's layer lie, for the oracle."""
    return folder / f"{name}.npz"


def read_weights(folder: Path, name: str) -> Arrays:
    with np.load(weights_file(folder, name), allow_pickle=False) as arrays:
        return dict(arrays)
