"""Atomic writes of files and folders: under a temporary name, renamed when complete and on the disk."""

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from .._errors import BundleError, ExportError
from .output_paths import Refusal, check_place, unless_a_file

_MARKER_FILE = (
    "replacing"  # file in a temporary folder that identifies the folder which its process renames to NAME.old
)
_RENAME_SECONDS = 0.5  # more than a running process needs between its two renames


@contextlib.contextmanager
def atomic_file(target: Path, overwrite_check: Refusal = unless_a_file) -> Iterator[Path]:
    """Yield a temporary path beside `target`, and rename it to `target` if the block succeeds.

    Raises `ExportError` if the file cannot be written, or `refusal` objects to replacing what is there.
    """
    temporary = target.parent / f".{uuid.uuid4().hex}.partial"
    try:
        yield temporary
        check_place(target, overwrite_check)
        _sync(temporary)
        temporary.replace(target)
    except OSError as error:
        raise ExportError(f"Cannot write {target}: {describe_os_error(error)}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


@contextlib.contextmanager
def atomic_folder(target: Path, overwrite_check: Refusal) -> Iterator[Path]:
    """Yield an empty folder beside `target`, and rename it to `target` if the block succeeds.

    A folder that is replaced is renamed to `NAME.old` first, and removed last; see `restore_folder`.
    Raises `BundleError` if the folder cannot be written, or `refusal` objects to replacing what is there.
    """
    target = Path(os.path.abspath(target))  # so that "." has a name and a parent
    with contextlib.ExitStack() as undo:
        undo.callback(_remove_empty, [folder for folder in target.parents if not folder.exists()])
        try:
            restore_folder(target)
            _check_folder(target, overwrite_check)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                old_path(target).lstat()  # fails now, and not after the block, if the name is too long
            staging = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}.", suffix=".partial", dir=target.parent))
            undo.callback(_clean_up, staging, target)
            (content := staging / "bundle").mkdir()  # with the user's umask: only its owner can read what mkdtemp makes
        except OSError as error:
            raise BundleError(f"Cannot write beside {target}: {describe_os_error(error)}.") from error
        yield content
        try:
            for path in content.rglob("*"):
                if path.is_file():
                    _sync(path)
            _check_folder(target, overwrite_check)  # again: something may have appeared during the block
            _rename_into_target(content, target)
        except OSError as error:
            raise BundleError(f"Cannot write {target}: {describe_os_error(error)}.") from error


def restore_folder(target: Path) -> None:
    """Rename the `NAME.old` of a killed process to `target`, or remove it if `target` exists; keep that of a user."""
    old = old_path(target)
    staging_folders = [path for path in old.parent.glob(".*.partial") if _has_renamed(path, old)]
    if staging_folders:
        time.sleep(_RENAME_SECONDS)  # a process that still runs completes its second rename
    for staging in staging_folders:
        _clean_up(staging, target)


def old_path(target: Path) -> Path:
    """Return the path NAME.old, to which a folder is renamed while it is replaced."""
    return Path(f"{os.path.abspath(target)}.old")


def describe_os_error(error: OSError) -> str:
    """Return the system's message for an error."""
    return os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]


def _check_folder(target: Path, overwrite_check: Refusal) -> None:
    check_place(target, overwrite_check, error=BundleError, in_a_folder=False)
    old = old_path(target)
    if os.path.lexists(target) and os.path.lexists(old):
        raise BundleError(f"{old} is in the way: {target} moves there while it is replaced. Rename or remove it.")


def _rename_into_target(content: Path, target: Path) -> None:
    if os.path.lexists(target):
        marker, old = content.parent / _MARKER_FILE, old_path(target)
        marker.write_text(_read_identity(target), "utf-8")
        target.rename(old)
        marker.write_text(
            _read_identity(old), "utf-8"
        )  # another process may have replaced the folder before the rename
    content.rename(target)  # fails if another process has put its folder there


def _read_identity(folder: Path) -> str:
    """Return what distinguishes a folder from any other; a rename does not change it."""
    return f"{folder.lstat().st_dev} {folder.lstat().st_ino}"


def _has_renamed(staging: Path, old: Path) -> bool:
    """Return whether the process of a temporary folder has renamed a folder to `old`."""
    with contextlib.suppress(OSError):
        return (staging / _MARKER_FILE).read_text("utf-8") == _read_identity(old)
    return False


def _clean_up(staging: Path, target: Path) -> None:
    """Rename NAME.old back, or into the temporary folder if `target` exists; then remove the temporary folder."""
    old = old_path(target)
    for _ in range(3):  # another process may create `target` meanwhile
        if _has_renamed(staging, old):
            with contextlib.suppress(OSError):
                old.rename(staging / uuid.uuid4().hex if os.path.lexists(target) else target)
    if not _has_renamed(staging, old):  # else the next export tries again
        shutil.rmtree(staging, ignore_errors=True)


def _remove_empty(folders: list[Path]) -> None:
    with contextlib.suppress(OSError):  # of the first folder that is not empty
        for folder in folders:
            folder.rmdir()


def _sync(file: Path) -> None:
    with file.open("rb+") as stream:  # on Windows, "rb" is not enough
        os.fsync(stream.fileno())
