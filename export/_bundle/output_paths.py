"""Checks that an output path may be written or overwritten."""

import os
from collections.abc import Callable
from pathlib import Path

from .._errors import ExportError
from .._format.names import CASES_FILE, MANIFEST, MODEL

# Returns the reason not to replace an existing file, folder or link, or `None`.
OverwriteCheck = Callable[[Path], str | None]

_REQUIRED_FILES = (MANIFEST, MODEL, CASES_FILE)
_MAX_RECOGNITION_BYTES = 16 * 2**20  # read from a file to recognize its kind; bounds the memory


def check_output_path(
    target: Path, overwrite_check: OverwriteCheck, *, error: type[ExportError] = ExportError, needs_parent: bool = True
) -> None:
    """Raise an error if a path is in a bundle, below a file or refused, or, if `in_a_folder`, has no parent."""
    if _is_in_bundle(target):
        raise error(f"{target} is in a bundle, which holds only the files in its manifest. Choose another path.")
    if needs_parent and not target.parent.is_dir():
        raise error(f"There is no folder {target.parent} to write {target.name} to.")
    if blocking_file := next((parent for parent in target.parents if parent.is_file()), None):
        raise error(f"{blocking_file} is a file, so {target} cannot be created. Choose another path.")
    if os.path.lexists(target) and (objection := overwrite_check(target)):
        raise error(objection)


def find_file_objection(path: Path) -> str | None:
    """Return a message if `path` is not a regular file, else `None`."""
    if path.is_file() and not path.is_symlink():
        return None
    return f"{path} exists and is not a file; it will not be replaced. Choose another path."


def find_kind_objection(path: Path, kind: str, is_one: Callable[[bytes], bool]) -> str | None:
    """Return a message if `path` is no file, or `is_one` does not recognize its content, else `None`."""
    if objection := find_file_objection(path):
        return objection
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_RECOGNITION_BYTES)
    except OSError as error:
        return f"Cannot write {path}: {error.strerror}."
    if not content or is_one(content):
        return None
    return f"{path} exists and is no {kind}; it will not be replaced. Choose another path."


def find_input_objection(path: Path, source: str | Path) -> str | None:
    """Return a message if `path` is the input file `source`, or is no file, else `None`."""
    if objection := find_file_objection(path):
        return objection
    try:
        if not os.path.samefile(path, source):
            return None
    except OSError:
        return None
    other_name = "" if str(path) == str(source) else f", as {source}"
    return f"{path} is an input of this command{other_name}; it will not be replaced. Choose another path."


def find_folder_objection(path: Path, reason: str) -> str | None:
    """Return a message with `reason` if `path` is a file or a link without target, else `None`."""
    if path.is_symlink() and not path.exists():
        return f"{path} is a symbolic link without target. Choose another path."
    return None if path.is_dir() else f"{path} is a file. {reason}: choose another path."


def _is_in_bundle(target: Path) -> bool:
    """Return True if a path, or the target of a link, is in a bundle."""
    parents = [*(Path(os.path.realpath(target.parent)) / target.name).parents, *Path(os.path.realpath(target)).parents]
    return any(all(os.path.isfile(folder / name) for name in _REQUIRED_FILES) for folder in parents)


def is_inside(path: Path, folder: Path) -> bool:
    """Return True if a path, with links resolved, is a folder or in it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
