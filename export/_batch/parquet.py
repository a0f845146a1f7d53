"""pyarrow, where it is installed: opening files, and what goes wrong with them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from .._packages import needing

# Of a broken file pyarrow raises its own errors, and OverflowError, IndexError or UnicodeDecodeError as it comes.
READ_ERRORS = (Exception,)


def check_pyarrow() -> None:
    """Check that pyarrow is installed.

    Raises:
        ExportError: It is not.
    """
    with needing("runtime", "Reading and writing Parquet"):
        import pyarrow.parquet  # noqa: F401


def open_parquet(file: str | Path) -> Any:
    """Return a `pyarrow.parquet.ParquetFile`, a context manager, which reads a page when it is its turn.

    With `pre_buffer` a whole row group would be held, however few of its rows are read at once.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    check_regular(file)
    # bytes, since the name of a file may be no text
    opened = pa.OSFile(os.fsencode(file))
    # a checksum costs little, where the file has any: without it, numbers that are not those that were written come out
    return ParquetFile(opened, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)


def check_regular(file: str | Path) -> None:
    """Check that what is to be read has an end: no pipe, no device, wherever links lead.

    Raises:
        OSError: It is such, or is not there.
    """
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise OSError("it is no regular file")


UNREAD = "cannot be read"  # how the reason begins


def said(error: BaseException) -> str:
    """Return the first line of what an error says."""
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def as_text(name: str) -> str:
    r"""Return a text that can be written: the name of a file may hold bytes that are none, which become `\udcff`."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
