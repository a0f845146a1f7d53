"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ._errors import ExportError
from ._places import Refusal, check_place, unless_a_file

try:
    import fcntl
except ImportError:  # Windows: what a killed process leaves is then left for the user to remove
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def removed(remove):
    try:
        yield
    finally:
        remove()


_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial")
_TRIES = 100


@contextlib.contextmanager
def whole_file(target: Path, refusal: Refusal = unless_a_file, *, folder: Path | None = None) -> Iterator[Path]:
    """Yield a path to write to; when the block ends well, that file becomes `target`, else it is removed.

    Where it lies beside `target`, what killed processes left there, of whatever target, is removed as well.

    Args:
        target: The file to write or replace.
        refusal: Says what speaks against replacing what is there. Whoever works long asks it before, by `check_place`;
            here it is asked at the end, since something may have appeared there meanwhile.
        folder: Where the file lies while it is written, on the same disk; `None` for beside `target`, hidden.

    Raises:
        ExportError: The file cannot be written; `target` is what it was.
    """
    try:
        if folder is None:
            with contextlib.suppress(OSError):  # a folder that may not be listed may be written to
                _sweep(target.parent)
        with _held_file(target.parent if folder is None else folder) as partial:
            yield partial
            check_place(target, refusal)
            put_in_place(partial, target)
    except OSError as error:
        raise ExportError(f"Cannot write {target}: {reason_of(error)}.") from error


def put_in_place(partial: Path, target: Path) -> None:
    """Rename a file, once all of it is on the disk, and then its name; a link is replaced, not followed."""
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.replace(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Ask the system to put the names in a folder on the disk."""
    with contextlib.suppress(OSError):  # Windows and some filesystems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def reason_of(error: OSError) -> str:
    """Return what the system says of an error, in its own words where it has a number."""
    return os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]


def locked(path: Path) -> TextIO | None:
    """Make a file and hold its lock, by which others can tell it from one that a killed process left.

    Returns:
        What to close in the end; `None` if a sweep came before the lock and took the file, or its folder.
    """
    try:
        file = path.open("w")
    except FileNotFoundError:
        return None
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:
        return file  # a network filesystem may have no locks: then nobody sweeps this file
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
    file.close()
    return None


@contextlib.contextmanager
def _held_file(folder: Path) -> Iterator[Path]:
    """Make a file in a folder, hold its lock as long as this process lives, and remove it in the end."""
    folder.stat()  # which fails where it is not there
    for _ in range(_TRIES):
        # a name of its own, since that of the target may be as long as names may be
        partial = folder / f".{uuid.uuid4().hex}.partial"
        if (lock := locked(partial)) is None:
            continue
        if fcntl is None:
            lock.close()  # Windows renames no file that is open
        with removed(functools.partial(_let_go, partial, lock)):
            yield partial
        return
    raise OSError("something removes every file that is made there")


def _let_go(partial: Path, lock: TextIO) -> None:
    with contextlib.suppress(OSError):
        partial.unlink()
    lock.close()


def _sweep(folder: Path) -> None:
    """Remove what killed processes left in a folder; what a living one writes is locked."""
    if fcntl is None:
        return
    with os.scandir(folder) as entries:
        left = [each.path for each in entries if _PARTIAL.fullmatch(each.name) and each.is_file(follow_symlinks=False)]
    for path in left:
        with contextlib.suppress(OSError), open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
            os.unlink(path)
