"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ._errors import BundleError

try:
    import fcntl
except ImportError:  # Windows: abandoned folders are then left for the user to remove
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".partial"
_LOCK = ".lock"
_ASIDE = "replaced"


@contextlib.contextmanager
def staged_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder beside `target`; when the block ends well, rename it to `target`, else remove it.

    A bundle that is there before is exchanged in one step, so that whoever looks sees the old one or the new one.
    What a killed process left behind is removed by the next export to the same place.

    Raises:
        BundleError: `target` exists and `overwrite` is false, or the place cannot be written.
    """
    target = Path(os.path.abspath(target))  # so that it has a name and a parent, even if it was given as "."
    made: list[Path] = []
    try:
        _refuse_existing(target, overwrite)
        made = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_SUFFIX, dir=target.parent))
    except OSError as error:
        _remove_empty(made)
        raise BundleError(f"Cannot write beside {target}: {error.strerror}.") from error
    try:
        with _held(staging):
            content = staging / "bundle"
            content.mkdir()
            yield content
            _sync(content)
            _refuse_existing(target, overwrite)  # it may have appeared while the model was being exported
            _move(content, target, overwrite)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        _remove_empty(made)


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders, innermost first, as far as they are empty: what an export that failed has made around it."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _refuse_existing(target: Path, overwrite: bool) -> None:
    if blocked := next((parent for parent in target.parents if parent.is_file()), None):
        raise BundleError(f"{blocked} is a file, so {target} cannot be made. Choose another place.")
    if target.is_dir() and overwrite and not (target / "manifest.json").is_file() and any(target.iterdir()):
        raise BundleError(f"{target} is a folder that holds no bundle; it will not be replaced. Choose another place.")
    if target.exists() and not target.is_dir():
        raise BundleError(f"{target} is a file. A bundle is a folder: choose another place.")
    if target.exists() and not overwrite:
        raise BundleError(f"{target} already exists. Pass overwrite=True (--overwrite) to replace it.")


@contextlib.contextmanager
def _held(staging: Path) -> Iterator[None]:
    """Hold a lock for as long as this process lives, so that others can tell a folder in use from an old one."""
    with (staging / f"{_LOCK}.new").open("w") as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a network filesystem may have no locks: then nobody sweeps this folder
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.rename(file.name, staging / _LOCK)  # it gets its name when it is held: `_sweep` never sees it free
        yield


def _sweep(target: Path) -> None:
    """Remove staging folders of exports to this place whose process is gone."""
    ours = re.compile(rf"\.{re.escape(target.name)}\.[^.]+{re.escape(_SUFFIX)}")
    for old in target.parent.iterdir():
        if fcntl is None or not ours.fullmatch(old.name) or not (old / _LOCK).exists():
            continue
        with contextlib.suppress(OSError), (old / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
            if (old / _ASIDE).exists() and not target.exists():
                (old / _ASIDE).rename(target)  # it was killed within `_exchange`
            shutil.rmtree(old, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Ask the system to put every file on disk before the folder gets its name."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _move(content: Path, target: Path, overwrite: bool) -> None:
    try:
        if not target.exists():
            content.rename(target)
        elif overwrite:
            _exchange(content, target)
    except OSError as error:
        raise BundleError(f"Cannot put the bundle in place at {target}: {error.strerror}.") from error


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
    except BaseException:  # Ctrl-C and SIGTERM too, or the old bundle would be removed with the staging folder
        aside.rename(old)
        raise
