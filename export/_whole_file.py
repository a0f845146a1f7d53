"""A file that appears whole or not at all, and whether it may stand in a place."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from ._errors import ExportError


def check_target(target: Path, *, bundle: Path | None = None, in_a_folder: bool = True) -> bool:
    """Check that a file may be written somewhere; return whether there is one, which would be replaced.

    Args:
        target: The place.
        bundle: A bundle that it must not be in.
        in_a_folder: Whether the folder must be there yet.

    Raises:
        ExportError: It is in the bundle, in no folder, or something else than a file is there.
    """
    if bundle is not None and is_within(target, bundle):
        raise ExportError(f"{target} is in the bundle, which holds only what its manifest lists. Choose another place.")
    if in_a_folder and not target.parent.is_dir():
        raise ExportError(f"There is no folder {target.parent} to write {target.name} to.")
    there = os.path.lexists(target)
    if there and (target.is_symlink() or not target.is_file()):
        raise ExportError(f"{target} is there and is not a file; it will not be replaced. Choose another place.")
    return there


def is_within(path: Path, folder: Path) -> bool:
    """Tell whether a path leads into a folder, or is it, wherever links lead."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


@contextlib.contextmanager
def whole_file(target: Path, *, folder: Path | None = None) -> Iterator[Path]:
    """Yield a path to write to; when the block ends well, that file becomes `target`, else it is removed.

    Args:
        target: The file to write or replace.
        folder: Where the file lies while it is written, on the same disk; `None` for beside `target`, hidden.

    Raises:
        ExportError: The file cannot be written; `target` is what it was.
    """
    # a name of its own, since that of `target` may be as long as names may be
    partial = (target.parent if folder is None else folder) / f".{uuid.uuid4().hex}.partial"
    try:
        yield partial
        put_in_place(partial, target)
    except OSError as error:
        raise ExportError(f"Cannot write {target}: {reason_of(error)}.") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def put_in_place(partial: Path, target: Path) -> None:
    """Rename a file, once all of it is on the disk."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(target)


def reason_of(error: OSError) -> str:
    """Return what the system says of an error, in its own words where it has a number."""
    return os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
