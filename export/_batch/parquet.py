"""pyarrow, where it is installed: opening files, and what goes wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._errors import ExportError

# pyarrow's own errors are among them: ArrowInvalid is a ValueError, ArrowNotImplementedError a NotImplementedError.
READ_ERRORS = (OSError, ValueError, NotImplementedError, KeyError, MemoryError)


def check_pyarrow() -> None:
    """Check that pyarrow is installed.

    Raises:
        ExportError: It is not.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ExportError(
            f"Parquet is read and written by pyarrow, which cannot be imported ({error}). Install keras-attn[batch]."
        ) from error


def open_parquet(file: str | Path) -> Any:
    """Return a `pyarrow.parquet.ParquetFile`, a context manager, which reads a page when it is its turn.

    With `pre_buffer` a whole row group would be held, however few of its rows are read at once.
    """
    from pyarrow.parquet import ParquetFile

    # a checksum costs little, where the file has any: without it, numbers that are not those that were written come out
    return ParquetFile(file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)


UNREAD = "cannot be read"  # how the reason begins


def said(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
