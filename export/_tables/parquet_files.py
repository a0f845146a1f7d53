"""Parquet files of a source, and their record batches."""

import contextlib
import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._dependencies import needing
from .._errors import InputError
from .._format.names import first_line

SUFFIXES = (".parquet", ".parq", ".pq")
CHUNK_ROWS = 4096
CHUNK_BYTES = 64 * 2**20  # three chunks are in memory: one is read, one runs, one is written


class UnreadableFileError(Exception):
    """A file that cannot run: damaged, or without the columns of the inputs."""


def find_files(source: str | Path) -> dict[str, Path]:
    """Return the Parquet files of a file, a folder or a pattern, by name relative to the folder before any wildcard.

    In folders, names that begin with `_` or `.` are ignored, as in Spark and Arrow, and links to folders not followed.
    """
    with needing("runtime", "Reading and writing Parquet"):
        import pyarrow.parquet  # noqa: F401
    if not isinstance(source, str | Path) or not str(source):
        raise InputError(f"`source` must be a path or a pattern. Received: {source!r}.")
    path = Path(os.path.abspath(source))
    matches = [path] if path.exists() else map(Path, glob.glob(str(path), recursive=True))
    root = path if path.is_dir() else path.parent
    while glob.has_magic(str(root)) and not root.exists():
        root = root.parent
    matched = {file for match in matches for file in (_in_folder(match) if match.is_dir() else [match])}
    # `_predict` in the destination of a run holds its tables of errors
    files = sorted(file for file in matched if "_predict" not in file.relative_to(root).parts[:-1])
    if not files:
        raise InputError(
            f"There is no Parquet file at {str(source)!r} (in a folder: {', '.join(SUFFIXES)}; in a pattern, write `[` "
            "as `[[]`). Paths are local."
        )
    # names that are not UTF-8 cannot be written to the table of errors
    return {file.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode(): file for file in files}


def _in_folder(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        is_hidden = any(part[0] in "_." for part in file.relative_to(folder).parts)
        if file.suffix.lower() in SUFFIXES and not is_hidden and file.is_file():
            yield file


def open_parquet(file: Path) -> Any:
    """Return a `pyarrow.parquet.ParquetFile` that reads page by page."""
    from pyarrow.parquet import ParquetFile

    with reading():
        return ParquetFile(file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Raise an `UnreadableFileError` if pyarrow fails; of a damaged file it raises errors of several classes."""
    try:
        yield
    except Exception as error:
        raise UnreadableFileError(f"cannot be read: {first_line(error).rstrip('.')}") from error


def record_batches(opened: Any, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield record batches of bounded rows and bytes."""
    groups = map(opened.metadata.row_group, range(opened.metadata.num_row_groups))
    rows = max(1, min(CHUNK_ROWS, int(CHUNK_BYTES / max(map(_row_bytes, groups), default=1))))
    # a scanner of pyarrow.dataset decodes complete row groups: 1.1 GB for one of a million rows, against 40 MB
    with reading():
        yield from opened.iter_batches(rows, columns=columns, use_threads=False)


def _row_bytes(group: Any) -> float:
    """Return the mean bytes of a row in memory; repeated numbers have almost no bytes in the file."""
    values = sum(group.column(index).num_values for index in range(group.num_columns))
    return float(max(1, 8 * values, group.total_byte_size) / max(1, group.num_rows))
