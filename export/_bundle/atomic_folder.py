"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TextIO

from .._errors import BundleError
from .._places import check_place, unless_a_folder, unless_overwriting
from .._standalone.verify import removed
from .._whole_file import locked, sync_folder
from .folder import is_bundle

try:
    import fcntl
except ImportError:  # Windows: abandoned folders are then left for the user to remove
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".partial"
_LOCK = ".lock"
_ASIDE = "replaced"  # the old bundle while the new one takes its place, where the system cannot exchange them
_DONE = "removed"  # the same, once it is no longer needed
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TRIES = 100
_LONG = 200  # bytes of a name, of which a file system takes 255


@contextlib.contextmanager
def staged_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder beside `target`; when the block ends well, rename it to `target`, else remove it.

    A bundle that is there before is exchanged in one step, so that whoever looks sees the old one or the new one.
    What a killed process left behind is removed by the next export to the same place.

    Raises:
        BundleError: `target` exists and `overwrite` is false, the place cannot be written, or the disk is full.
    """
    target = Path(os.path.abspath(target))  # so that it has a name and a parent, even if it was given as "."
    made: list[Path] = []
    with contextlib.ExitStack() as undo:
        undo.enter_context(removed(lambda: _remove_empty(made)))
        try:
            _check_place(target, overwrite)
            made = [folder for folder in target.parents if not folder.exists()]
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                target.lstat()  # which fails now, and not when all is done, where the name is too long
            _sweep(target)
            staging = undo.enter_context(_held_folder(target))
            content = staging / "bundle"
            content.mkdir()
        except OSError as error:
            raise BundleError(f"Cannot write beside {target}: {error.strerror}.") from error
        with _said_in_a_sentence(target, staging):
            yield content
            _sync(content)
            _check_place(target, overwrite)  # it may have appeared while the model was being exported
        _move(content, target, overwrite)
        sync_folder(target.parent)


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders, innermost first, as far as they are empty: what an export that failed has made around it."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _check_place(target: Path, overwrite: bool) -> None:
    def refusal(there: Path) -> str | None:
        said = unless_a_folder(there, "A bundle is a folder") or unless_overwriting(there, overwrite=overwrite)
        if said is None and not is_bundle(there) and any(there.iterdir()):
            return f"{there} is a folder that holds no bundle; it will not be replaced. Choose another place."
        return said

    check_place(target, refusal, error=BundleError, in_a_folder=False)


@contextlib.contextmanager
def _said_in_a_sentence(target: Path, staging: Path) -> Iterator[None]:
    """Raise `BundleError` in place of an error that a full disk, or the loss of the staging folder, is behind.

    TensorFlow raises errors of its own for a full disk, and callers wrap them, so their causes are looked through.
    """
    try:
        yield
    except Exception as error:
        if reason := _storage_reason(error, staging):
            raise BundleError(f"Cannot write {target}: {reason}.") from error
        raise


def _storage_reason(error: BaseException | None, staging: Path) -> str | None:
    if not staging.is_dir():
        return "the folder in which it was being made has been removed"
    while error is not None:
        for number in _NO_SPACE:
            if getattr(error, "errno", None) == number or os.strerror(number) in str(error):
                return os.strerror(number)
        if isinstance(error, OSError) and str(error.filename).startswith(str(staging)):
            return error.strerror
        error = error.__cause__ or error.__context__
    return None


@contextlib.contextmanager
def _held_folder(target: Path) -> Iterator[Path]:
    """Make a folder beside `target`, hold its lock as long as this process lives, and remove it in the end.

    By the lock others can tell a folder in use from an old one. Until it is held, a `_sweep` may take the folder for
    an old one and remove it; then another is made.
    """
    for _ in range(_TRIES):
        staging = Path(tempfile.mkdtemp(prefix=_prefix(target.name), suffix=_SUFFIX, dir=target.parent))
        lock = locked(staging / _LOCK)
        if lock is None:
            continue
        with removed(partial(_let_go, lock, staging, target)):
            yield staging
        return
    raise BundleError(f"Cannot write beside {target}: something removes every folder that is made there.")


def _let_go(lock: TextIO, staging: Path, target: Path) -> None:
    if fcntl is None:
        lock.close()  # Windows removes no file that is open
    try:
        _discard(staging, target)
    except BaseException:  # told to end in the middle of it: remove the rest, then end
        _discard(staging, target)
        raise
    lock.close()


def _prefix(name: str) -> str:
    """Return how names of staging folders begin: with the name of the target, or its hash where it is long."""
    encoded = os.fsencode(name)
    return f".{name if len(encoded) <= _LONG else hashlib.sha256(encoded).hexdigest()}."


def _sweep(target: Path) -> None:
    """Remove staging folders of exports to this place whose process is gone."""
    ours = re.compile(rf"{re.escape(_prefix(target.name))}[a-z0-9_]{{8}}{re.escape(_SUFFIX)}")  # 8 such by `mkdtemp`
    for old in target.parent.iterdir():
        if fcntl is None or not ours.fullmatch(old.name):
            continue
        with contextlib.suppress(OSError):
            old.rmdir()  # one that was killed before it held its lock, or after it had let go, left it empty
        with contextlib.suppress(OSError), (old / _LOCK).open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
            _discard(old, target)


def _discard(staging: Path, target: Path) -> None:
    """Remove a staging folder, the lock last; first put back the old bundle if `_exchange` was cut short."""
    aside = staging / _ASIDE
    with contextlib.suppress(OSError):
        if aside.exists():  # once its removal has begun it has another name, so that no half of it is ever put back
            aside.rename(staging / _DONE if target.exists() else target)
    with contextlib.suppress(OSError):
        for path in staging.iterdir():
            if path.name == _LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        if [path.name for path in staging.iterdir()] == [_LOCK]:  # else the next sweep finds the rest by the lock
            (staging / _LOCK).unlink()
            staging.rmdir()


def _sync(folder: Path) -> None:
    """Ask the system to put every file on disk before the folder gets its name."""
    for path in (folder, *folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        elif path.is_dir():
            sync_folder(path)


def _move(content: Path, target: Path, overwrite: bool) -> None:
    reason: str | None = None
    for _ in range(_TRIES):
        try:
            if overwrite and target.exists():
                _exchange(content, target)
            else:
                content.rename(target)  # fails if there is a folder that holds anything
            return
        except OSError as error:
            came_or_went = error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)
            reason = "another export put a bundle there meanwhile" if came_or_went else error.strerror
            if not (came_or_went and overwrite and content.exists()):
                break
    raise BundleError(f"Cannot put the bundle in place at {target}: {reason}.")


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders in one step where the system can; else move the old one aside first."""
    names = os.fsencode(new), os.fsencode(old)
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform in ("linux", "darwin") else None
    here, swap = -100, 2  # AT_FDCWD; RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS
    if sys.platform == "linux" and hasattr(libc, "renameat2"):
        failed = libc.renameat2(here, names[0], here, names[1], swap)  # type: ignore[union-attr]
    elif sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(*names, swap)  # type: ignore[union-attr]
    else:
        failed = -1
        ctypes.set_errno(errno.ENOSYS)
    if not failed:
        return
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    aside = new.with_name(_ASIDE)
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:  # Ctrl-C and SIGTERM too; what comes before or after this block, `_discard` sees to
        aside.rename(old)
        raise
