"""Atomic writes of files and folders: under a temporary name, renamed when complete and on the disk.

A folder cannot replace another one by a single rename. So the old folder becomes NAME.old, the new one becomes NAME,
and NAME.old is removed. A process that is killed between the two renames leaves NAME.old and its temporary folder,
which has a marker file with device and inode of the old folder. The next export or load finds the marker, waits until
a process that still runs has had time for its second rename, and renames NAME.old back, or removes it if NAME exists.
A NAME.old without marker belongs to the user and is kept.
"""

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from .._errors import BundleError, ExportError
from .output_paths import OverwriteCheck, check_output_path, find_file_objection

_MARKER_FILE = "replacing"  # in a temporary folder; identifies the folder that its process renames to NAME.old
_RENAME_SECONDS = 0.5  # upper bound of the time between the two renames of a running process


@contextlib.contextmanager
def atomic_file(target: Path, overwrite_check: OverwriteCheck = find_file_objection) -> Iterator[Path]:
    """Yield a temporary path in the folder of `target`, and rename it to `target` if the block succeeds.

    Raises `ExportError` if the file cannot be written, or `overwrite_check` returns a reason not to replace `target`.
    """
    temporary = target.parent / f".{uuid.uuid4().hex}.partial"
    try:
        yield temporary
        check_output_path(target, overwrite_check)
        _sync(temporary)
        temporary.replace(target)
    except OSError as error:
        raise ExportError(f"Cannot write {target}: {describe_os_error(error)}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


@contextlib.contextmanager
def atomic_folder(target: Path, overwrite_check: OverwriteCheck) -> Iterator[Path]:
    """Yield an empty folder in the parent of `target`, and rename it to `target` if the block succeeds.

    Raises `BundleError` if the folder cannot be written, or `overwrite_check` returns a reason not to replace `target`.
    """
    target = Path(os.path.abspath(target))  # "." has neither name nor parent
    with contextlib.ExitStack() as undo:
        undo.callback(_remove_empty, [folder for folder in target.parents if not folder.exists()])
        try:
            restore_folder(target)
            _check_folder(target, overwrite_check)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                old_path(target).lstat()  # raises before the block if the name is too long
            staging = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}.", suffix=".partial", dir=target.parent))
            undo.callback(_clean_up, staging, target)
            # A subfolder, because `mkdtemp` removes all permissions of other users, and `mkdir` applies the umask.
            (content := staging / "bundle").mkdir()
        except OSError as error:
            raise BundleError(f"Cannot write beside {target}: {describe_os_error(error)}.") from error
        yield content
        try:
            for path in content.rglob("*"):
                if path.is_file():
                    _sync(path)
            # Checked again, because another process may have created `target` during the block.
            _check_folder(target, overwrite_check)
            _rename_into_target(content, target)
        except OSError as error:
            raise BundleError(f"Cannot write {target}: {describe_os_error(error)}.") from error


def restore_folder(target: Path) -> None:
    """Rename the `NAME.old` of a killed process to `target`, or remove it if `target` exists; keep that of a user."""
    old = old_path(target)
    staging_folders = [path for path in old.parent.glob(".*.partial") if _has_renamed(path, old)]
    if staging_folders:
        time.sleep(_RENAME_SECONDS)
    for staging in staging_folders:
        _clean_up(staging, target)


def old_path(target: Path) -> Path:
    """Return the path NAME.old of a folder while it is replaced."""
    return Path(f"{os.path.abspath(target)}.old")


def describe_os_error(error: OSError) -> str:
    """Return the message of the operating system for an error."""
    return os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]


def _check_folder(target: Path, overwrite_check: OverwriteCheck) -> None:
    check_output_path(target, overwrite_check, error=BundleError, needs_parent=False)
    old = old_path(target)
    if os.path.lexists(target) and os.path.lexists(old):
        raise BundleError(f"{old} is in the way: {target} moves there while it is replaced. Rename or remove it.")


def _rename_into_target(content: Path, target: Path) -> None:
    if os.path.lexists(target):
        marker, old = content.parent / _MARKER_FILE, old_path(target)
        marker.write_text(_read_identity(target), "utf-8")
        target.rename(old)
        # Written again, because another process may have replaced the folder before the rename.
        marker.write_text(_read_identity(old), "utf-8")
    content.rename(target)  # raises if another process has renamed its folder to `target`


def _read_identity(folder: Path) -> str:
    """Return device and inode of a folder, which a rename does not change."""
    return f"{folder.lstat().st_dev} {folder.lstat().st_ino}"


def _has_renamed(staging: Path, old: Path) -> bool:
    """Return True if the process of a temporary folder has renamed a folder to `old`."""
    with contextlib.suppress(OSError):
        return (staging / _MARKER_FILE).read_text("utf-8") == _read_identity(old)
    return False


def _clean_up(staging: Path, target: Path) -> None:
    """Rename NAME.old back, or into the temporary folder if `target` exists; then remove the temporary folder."""
    old = old_path(target)
    # Another process may create `target` between the check and the rename, which then fails and is repeated.
    for _ in range(3):
        if _has_renamed(staging, old):
            with contextlib.suppress(OSError):
                old.rename(staging / uuid.uuid4().hex if os.path.lexists(target) else target)
    # If `old` could not be renamed, the temporary folder stays, so that the next export repeats the clean-up.
    if not _has_renamed(staging, old):
        shutil.rmtree(staging, ignore_errors=True)


def _remove_empty(folders: list[Path]) -> None:
    with contextlib.suppress(OSError):  # stops at the first folder that is not empty
        for folder in folders:
            folder.rmdir()


def _sync(file: Path) -> None:
    with file.open("rb+") as stream:  # Windows can sync only a file that is open for writing
        os.fsync(stream.fileno())
