"""Parquet files of a source, and their rows as record batches."""

import contextlib
import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._dependencies import require_extra
from .._errors import InputError
from .._format.names import first_line

SUFFIXES = (".parquet", ".parq", ".pq")
CHUNK_ROWS = 4096
# Three chunks are in memory: one is read, one runs and one is written.
CHUNK_BYTES = 64 * 2**20


class UnreadableFileError(Exception):
    """Error of a file that cannot run: it is damaged, or lacks a column of an input."""


def find_files(source: str | Path) -> dict[str, Path]:
    """Find the Parquet files of a file, a folder or a pattern, by path relative to the folder before any wildcard."""
    with require_extra("runtime", "Reading and writing Parquet"):
        import pyarrow.parquet  # noqa: F401
    if not isinstance(source, str | Path) or not str(source):
        raise InputError(f"`source` must be a path or a pattern. Received: {source!r}.")
    path = Path(os.path.abspath(source))
    matches = [path] if path.exists() else map(Path, glob.glob(str(path), recursive=True))
    root = path if path.is_dir() else path.parent
    while glob.has_magic(str(root)) and not root.exists():
        root = root.parent
    matched = {file for match in matches for file in (_find_in_folder(match) if match.is_dir() else [match])}
    # `_predict` in the destination of a run contains its error tables.
    files = sorted(file for file in matched if "_predict" not in file.relative_to(root).parts[:-1])
    if not files:
        raise InputError(
            f"There is no Parquet file at {str(source)!r} (in a folder: {', '.join(SUFFIXES)}; in a pattern, write `[` "
            "as `[[]`). Paths are local."
        )
    # A name that is not UTF-8 could not be written to the error table.
    return {file.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode(): file for file in files}


def _find_in_folder(folder: Path) -> Iterator[Path]:
    # Spark and Arrow ignore names that begin with `_` or `.` too. `rglob` does not follow links to folders.
    for file in folder.rglob("*"):
        is_hidden = any(part[0] in "_." for part in file.relative_to(folder).parts)
        if file.suffix.lower() in SUFFIXES and not is_hidden and file.is_file():
            yield file


def open_parquet(file: Path) -> Any:
    """Open a `pyarrow.parquet.ParquetFile` that reads page by page."""
    from pyarrow.parquet import ParquetFile

    with convert_pyarrow_errors():
        return ParquetFile(file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)


@contextlib.contextmanager
def convert_pyarrow_errors() -> Iterator[None]:
    """Convert the errors of pyarrow, of several classes for a damaged file, to an `UnreadableFileError`."""
    try:
        yield
    except Exception as error:
        raise UnreadableFileError(f"cannot be read: {first_line(error).rstrip('.')}") from error


def iterate_batches(parquet_file: Any, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield record batches of at most `CHUNK_ROWS` rows and about `CHUNK_BYTES`."""
    groups = map(parquet_file.metadata.row_group, range(parquet_file.metadata.num_row_groups))
    rows = max(1, min(CHUNK_ROWS, int(CHUNK_BYTES / max(map(_estimate_row_bytes, groups), default=1))))
    # A scanner of pyarrow.dataset decodes complete row groups: 1.1 GB for a million rows, instead of 40 MB.
    with convert_pyarrow_errors():
        yield from parquet_file.iter_batches(rows, columns=columns, use_threads=False)


def _estimate_row_bytes(group: Any) -> float:
    # The sizes in the file alone would be too small: dictionary encoding stores repeated values in almost no bytes.
    values = sum(group.column(index).num_values for index in range(group.num_columns))
    return float(max(1, 8 * values, group.total_byte_size) / max(1, group.num_rows))
