"""Write files and folders under a temporary name, and rename them once they are complete and on the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from ._errors import BundleError, ExportError
from ._places import Refusal, check_place, unless_a_file

_REPLACING = "replacing"  # in the temporary folder of a process that may have renamed the old folder
_MOMENT = 0.1  # seconds; between its two renames a process needs far less


@contextlib.contextmanager
def atomic_file(target: Path, refusal: Refusal = unless_a_file) -> Iterator[Path]:
    """Yield a temporary path beside `target`, and rename it to `target` if the block succeeds.

    Raises `ExportError` if the file cannot be written, or `refusal` objects to replacing what is there.
    """
    partial = target.parent / f".{uuid.uuid4().hex}.partial"
    try:
        yield partial
        check_place(target, refusal)
        _sync(partial)
        partial.replace(target)
    except OSError as error:
        raise ExportError(f"Cannot write {target}: {reason_of(error)}.") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def atomic_folder(target: Path, refusal: Refusal) -> Iterator[Path]:
    """Yield an empty folder beside `target`, and rename it to `target` if the block succeeds.

    A folder that is replaced is renamed to `NAME.old` first, and removed last; see `restore_folder`.
    Raises `BundleError` if the folder cannot be written, or `refusal` objects to replacing what is there.
    """
    target = Path(os.path.abspath(target))  # so that "." has a name and a parent
    with contextlib.ExitStack() as undo:
        undo.callback(_remove_empty, [folder for folder in target.parents if not folder.exists()])
        try:
            restore_folder(target)
            _check_folder(target, refusal)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                old_name(target).lstat()  # fails now, and not after the work, if the name is too long
            staging = Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=".partial", dir=target.parent))
            undo.callback(_clean_up, staging, target)
            (content := staging / "bundle").mkdir()  # unlike `mkdtemp`, with the permissions that the user chose
        except OSError as error:
            raise BundleError(f"Cannot write beside {target}: {reason_of(error)}.") from error
        yield content
        try:
            for path in content.rglob("*"):
                if path.is_file():
                    _sync(path)
            _check_folder(target, refusal)  # again: the work took long
            _put_in_place(content, target)
        except OSError as error:
            raise BundleError(f"Cannot write {target}: {reason_of(error)}.") from error


def restore_folder(target: Path) -> bool:
    """Rename `NAME.old` back to `target`, or remove it if `target` exists, where a killed process left it.

    Its temporary folder shows that; without one, `NAME.old` is the user's own.
    """
    left = target.parent.iterdir() if old_name(target).is_dir() else ()
    marked = [path for path in left if path.name.startswith(_prefix(target)) and (path / _REPLACING).exists()]
    if marked:
        time.sleep(_MOMENT)  # a living process may be between its renames
    for staging in marked:
        _clean_up(staging, target)
    return bool(marked)


def old_name(target: Path) -> Path:
    """Return the name of a folder while another one takes its place."""
    absolute = Path(os.path.abspath(target))  # "." has no name
    return absolute.with_name(f"{absolute.name}.old")


def reason_of(error: OSError) -> str:
    """Return the system's message for an error."""
    return os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]


def _prefix(target: Path) -> str:
    return f".{target.name[:40]}."  # a name may have 255 bytes


def _check_folder(target: Path, refusal: Refusal) -> None:
    check_place(target, refusal, error=BundleError, in_a_folder=False)
    old = old_name(target)
    if os.path.lexists(target) and os.path.lexists(old):
        raise BundleError(f"{old} is in the way: {target} moves there while it is replaced. Rename or remove it.")


def _put_in_place(content: Path, target: Path) -> None:
    if os.path.lexists(target):
        content.with_name(_REPLACING).touch()
        target.rename(old_name(target))
    content.rename(target)  # fails if another process has put its folder there


def _clean_up(staging: Path, target: Path) -> None:
    """Remove a temporary folder; before, put the old folder back, or into it if the new one is in place."""
    if (staging / _REPLACING).exists():
        with contextlib.suppress(FileNotFoundError):  # nothing was renamed, or another process has cleaned up
            old_name(target).rename(staging / "replaced" if os.path.lexists(target) else target)
    shutil.rmtree(staging, ignore_errors=True)


def _remove_empty(folders: list[Path]) -> None:
    with contextlib.suppress(OSError):  # of the first that holds something
        for folder in folders:
            folder.rmdir()


def _sync(file: Path) -> None:
    with file.open("rb+") as opened:  # on Windows, "rb" is not enough
        os.fsync(opened.fileno())
