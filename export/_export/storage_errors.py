"""Translate errors of a full disk, which TensorFlow and its callers raise in various classes."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from .._errors import BundleError

_FULL_DISK_MESSAGES = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)]


@contextlib.contextmanager
def translate_storage_errors(target: Path, folder: Path) -> Iterator[None]:
    """Raise `BundleError` if an error is caused by a full disk, or by the removal of the temporary `folder`."""
    try:
        yield
    except Exception as error:
        if reason := _find_reason(error, folder):
            raise BundleError(f"Cannot write {target}: {reason}.") from error
        raise


def _find_reason(error: BaseException | None, folder: Path) -> str | None:
    if not folder.is_dir():
        return "another process has removed the temporary folder of the export"
    while error is not None:  # callers wrap the errors of TensorFlow
        if message := next((text for text in _FULL_DISK_MESSAGES if text in str(error)), None):
            return message
        if isinstance(error, OSError) and str(error.filename).startswith(str(folder)):
            return error.strerror
        error = error.__cause__ or error.__context__
    return None
