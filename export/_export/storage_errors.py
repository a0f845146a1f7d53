"""Name a full disk, which TensorFlow reports in errors of its own."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from .._errors import BundleError

_NO_SPACE = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)]


@contextlib.contextmanager
def translate_storage_errors(target: Path, folder: Path) -> Iterator[None]:
    """Raise `BundleError` if a full disk, or the loss of `folder`, is the cause of an error.

    Args:
        target: The bundle, for the message.
        folder: Where its files are written.
    """
    try:
        yield
    except Exception as error:
        if reason := _find_reason(error, folder):
            raise BundleError(f"Cannot write {target}: {reason}.") from error
        raise


def _find_reason(error: BaseException | None, folder: Path) -> str | None:
    if not folder.is_dir():
        return "the folder in which it was being made has been removed"
    while error is not None:  # callers wrap what TensorFlow raises
        if message := next((text for text in _NO_SPACE if text in str(error)), None):
            return message
        if isinstance(error, OSError) and str(error.filename).startswith(str(folder)):
            return error.strerror
        error = error.__cause__ or error.__context__
    return None
