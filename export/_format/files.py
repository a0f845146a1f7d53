"""Files of a bundle: the manifest, and the SHA-256 digests of all files."""

import hashlib
import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .names import DIGEST, MANIFEST, SCHEMA_VERSION, BundleError

IGNORED, CACHE_FOLDER = (".DS_Store", "Thumbs.db"), "__pycache__"  # file managers and Python add them


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest; raise `BundleError` if a file is missing, altered or unlisted, or onnxruntime is too old."""
    manifest = read_manifest_file(folder)
    minimum = manifest["lowest_onnxruntime"]
    if version := find_older_onnxruntime(minimum):
        raise BundleError(f"{folder} needs onnxruntime {minimum} or newer, and {version} is installed. Upgrade it.")
    check_files(folder, manifest["sha256"])
    return manifest


def read_manifest_file(folder: Path) -> dict[str, Any]:
    """Return the manifest; raise `BundleError` if it is missing, altered or of an unknown schema version."""
    path = folder / MANIFEST
    try:
        raw = path.read_bytes()
        manifest = json.loads(raw)
        version, is_altered = manifest["schema_version"], raw != manifest_bytes(manifest)
    except OSError as error:
        raise BundleError(f"No bundle at {folder}: cannot read {MANIFEST} ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BundleError(f"{path} is not a bundle's manifest ({type(error).__name__}). Export it again.") from error
    if type(version) is not int or version != SCHEMA_VERSION:
        remedy = "Export the model again, or upgrade keras-attn"
        raise BundleError(f"{path} has schema version {version!r}, and this reader needs {SCHEMA_VERSION}. {remedy}.")
    if is_altered:
        raise BundleError(f"{path} is not the file that was exported: it does not match its own `{DIGEST}`.")
    return dict(manifest)


def find_older_onnxruntime(min_version: str) -> str | None:
    """Return the version of the installed onnxruntime if it is older than `min_version`, otherwise None."""
    try:
        installed = str(importlib.import_module("onnxruntime").__version__)
    except (ImportError, AttributeError):
        return None
    release = [int(number) for number in re.findall("[0-9]+", installed)[:2]]
    return installed if release and release < [int(number) for number in min_version.split(".")] else None


def manifest_bytes(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of the manifest file. The last entry is the digest of all entries before it."""
    entries = {name: value for name, value in content.items() if name != DIGEST}
    encoded = (json.dumps(entries, indent=2, allow_nan=False) + "\n").encode("ascii")
    digest = hashlib.sha256(encoded).hexdigest()
    return encoded.removesuffix(b"\n}\n") + f',\n  "{DIGEST}": "{digest}"\n}}\n'.encode("ascii")


def check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    """Raise `BundleError` if the files of a folder and their SHA-256 digests are not exactly the listed ones."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    paths = (path.relative_to(folder) for path in files if path.name not in IGNORED)
    names = {path.as_posix() for path in paths if CACHE_FOLDER not in path.parent.parts}
    if missing := hashes.keys() - names:
        raise BundleError(f"{folder} is incomplete: {min(missing)} is missing.")
    if extra := names - hashes.keys() - {MANIFEST}:
        raise BundleError(f"{folder} holds {min(extra)}, which its manifest does not list. Keep other files elsewhere.")
    for name, expected in hashes.items():
        if sha256(folder / name) != expected:
            raise BundleError(f"{folder / name} is not the file that was exported: its sha256 is not the manifest's.")


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
