"""Whether a file or a folder may be written in a place: asked before the work, and again before it is put there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ._errors import ExportError


def check_place(
    target: Path,
    refusal: Callable[[Path], str | None],
    *,
    error: type[ExportError] = ExportError,
    bundle: Path | None = None,
    in_a_folder: bool = True,
) -> None:
    """Check that something may be written somewhere.

    Args:
        target: The place.
        refusal: Maps what is there, a link that leads nowhere too, to what is said against replacing it or going on
            with it; to `None` where nothing is.
        error: What is raised.
        bundle: A bundle that it must not be in.
        in_a_folder: Whether the folder around it must be there yet.

    Raises:
        ExportError: It is in the bundle, it is in no folder or in a file, or there is a refusal.
    """
    if bundle is not None and is_within(target, bundle):
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


def unless_a_folder(there: Path, wanted: str) -> str | None:
    """Return what is said against replacing something by a folder, in which `wanted` tells why it is one."""
    if there.is_symlink() and not there.exists():
        return f"{there} is a symbolic link that leads nowhere. Choose another place."
    return None if there.is_dir() else f"{there} is a file. {wanted}: choose another place."


def unless_overwriting(there: Path, *, overwrite: bool) -> str | None:
    """Return what is said against replacing something that nobody asked to replace."""
    return None if overwrite else f"{there} already exists. Pass overwrite=True (--overwrite) to replace it."


def is_within(path: Path, folder: Path) -> bool:
    """Tell whether a path leads into a folder, or is it, wherever links lead."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
