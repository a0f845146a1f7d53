"""Checks that an output path may be written or overwritten."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .._errors import ExportError
from .._format.names import CASES, MANIFEST, MODEL

Refusal = Callable[[Path], str | None]  # maps what is there to what is said against replacing it, `None` for nothing

_IN_EVERY_BUNDLE = (MANIFEST, MODEL, CASES)
_MOST_READ = 16 * 2**20  # bytes by which a file is known


def check_place(
    target: Path,
    refusal: Refusal,
    *,
    error: type[ExportError] = ExportError,
    in_a_folder: bool = True,
) -> None:
    """Check that something may be written somewhere.

    Args:
        target: The place.
        refusal: Says what speaks against replacing what is there, a link that leads nowhere too, or going on with it.
        error: What is raised.
        in_a_folder: Whether the folder around it must be there yet.

    Raises:
        ExportError: It is in a bundle, it is in no folder or in a file, or there is a refusal.
    """
    if _is_in_a_bundle(target):
        raise error(f"{target} is in the bundle, which holds only what its manifest lists. Choose another place.")
    if in_a_folder and not target.parent.is_dir():
        raise error(f"There is no folder {target.parent} to write {target.name} to.")
    if blocked := next((parent for parent in target.parents if parent.is_file()), None):
        raise error(f"{blocked} is a file, so {target} cannot be made. Choose another place.")
    if os.path.lexists(target) and (said := refusal(target)):
        raise error(said)


def unless_a_file(there: Path) -> str | None:
    """Return what is said against replacing something by a file."""
    if there.is_file() and not there.is_symlink():
        return None
    return f"{there} is there and is not a file; it will not be replaced. Choose another place."


def unless_of_kind(there: Path, kind: str, is_one: Callable[[bytes], bool]) -> str | None:
    """Return what is said against replacing something by a file of a kind that its content shows, `kind` in words."""
    if said := unless_a_file(there):
        return said
    try:
        with there.open("rb") as file:
            content = file.read(_MOST_READ)
    except OSError as error:
        return f"Cannot write {there}: {error.strerror}."
    known = not content or is_one(content)  # an empty file, as `mktemp` makes one, loses nothing
    return None if known else f"{there} is there and is no {kind}; it will not be replaced. Choose another place."


def unless_read(there: Path, read: str | Path) -> str | None:
    """Return what is said against replacing a file that is read for what is written, under whatever name."""
    if said := unless_a_file(there):
        return said
    try:
        same = os.path.samefile(there, read)
    except OSError:
        return None
    called = "" if str(there) == str(read) else f", as {read}"
    return f"{there} is read for this{called}; it will not be replaced. Choose another place." if same else None


def unless_a_folder(there: Path, wanted: str) -> str | None:
    """Return what is said against replacing something by a folder, in which `wanted` tells why it is one."""
    if there.is_symlink() and not there.exists():
        return f"{there} is a symbolic link that leads nowhere. Choose another place."
    return None if there.is_dir() else f"{there} is a file. {wanted}: choose another place."


def unless_overwriting(there: Path, *, overwrite: bool) -> str | None:
    """Return what is said against replacing something that nobody asked to replace."""
    return None if overwrite else f"{there} already exists. Pass overwrite=True (--overwrite) to replace it."


def _is_in_a_bundle(target: Path) -> bool:
    """Tell whether a path leads into a bundle, whose ever it is."""
    link, real = Path(os.path.realpath(target.parent)) / target.name, Path(os.path.realpath(target))
    return any(
        all(os.path.isfile(folder / name) for name in _IN_EVERY_BUNDLE) for folder in (*link.parents, *real.parents)
    )


def is_within(path: Path, folder: Path) -> bool:
    """Tell whether a path leads into a folder, or is it, wherever links lead."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
