"""The parts of a source: Parquet files, or runs of row groups of large ones."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .._errors import InputError
from .parquet import READ_ERRORS, UNREAD, open_parquet, said

# A file of more is cut between its row groups: what a killed run loses is at most a part, and parts go to workers.
PART_BYTES = 128 * 2**20
SUFFIXES = (".parquet", ".parq", ".pq")


@dataclass(frozen=True)
class Part:
    """A file of the source, or some of its row groups; it becomes one file of the destination.

    Attributes:
        name: Where in the destination it goes, with `/` between folders.
        path: The file.
        groups: Its row groups, from the first to before the second.
        first_row: Which row of the file its first one is.
        rows: How many rows it has.
        fingerprint: What tells it from another file: the size, and a hash of the footer.
        problem: Why it cannot be read at all, or `None`.
    """

    name: str
    path: str
    groups: tuple[int, int] = (0, 0)
    first_row: int = 0
    rows: int = 0
    fingerprint: str = ""
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in the manifest of a run: not where the file lies, which may be another place by then."""
        kept = asdict(self)
        return {name: kept[name] for name in ("name", "rows", "fingerprint")}


def find_parts(source: str | Path) -> list[Part]:
    """Return the parts of a file, of a folder and those below it, or of what a pattern matches, in order of name.

    In folders, files whose names begin with `_` or `.` are left out, as Spark and Arrow do.

    Raises:
        InputError: There is no such file, or none of Parquet in the folder.
    """
    files, root = _files(str(source))
    return [part for file in files for part in _parts_of(file, PurePosixPath(file.relative_to(root).as_posix()))]


def _files(source: str) -> tuple[list[Path], Path]:
    path = Path(os.path.abspath(source))
    if path.is_file():
        return [path], path.parent
    if path.is_dir():
        found = sorted(_in_folder(path))
        if not found:
            raise InputError(f"{source} holds no Parquet: no file in it or below ends in {', '.join(SUFFIXES)}.")
        return found, path
    if not glob.has_magic(source):
        raise InputError(f"There is no file or folder {source}.")
    matched = (Path(os.path.abspath(file)) for file in glob.glob(source, recursive=True))
    found = sorted(file for file in matched if file.is_file())
    if not found:
        raise InputError(f"No file matches {source}.")
    return found, Path(os.path.commonpath([file.parent for file in found]))


def _in_folder(folder: Path) -> Iterator[Path]:
    for above, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "_."]
        yield from (Path(above, name) for name in names if name[0] not in "_." and name.lower().endswith(SUFFIXES))


def _parts_of(file: Path, name: PurePosixPath) -> list[Part]:
    fingerprint = ""
    try:
        fingerprint = _fingerprint(file)
        with open_parquet(file) as opened:
            runs = list(_runs(opened.metadata))
    except READ_ERRORS as error:
        return [Part(str(name), str(file), fingerprint=fingerprint, problem=f"{UNREAD}: {said(error)}")]
    parts, first_row = [], 0
    for number, (groups, rows) in enumerate(runs):
        # a folder in place of the file: no other file of the source can be called so
        own = name if len(runs) == 1 else name / f"part-{number:05d}.parquet"
        parts.append(Part(str(own), str(file), groups, first_row, rows, fingerprint))
        first_row += rows
    return parts


def _runs(metadata: Any) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield runs of row groups, none empty but in a file without any, and their rows."""
    start = size = rows = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        if group > start and size + row_group.total_byte_size > PART_BYTES:
            yield (start, group), rows
            start, size, rows = group, 0, 0
        size += row_group.total_byte_size
        rows += row_group.num_rows
    yield (start, metadata.num_row_groups), rows


def _fingerprint(file: Path) -> str:
    """Return the size of a file and a hash of its footer, which says how large each column is, packed, and more.

    The file need not be read for it: two that differ, and have the same, have columns of the same sizes to the byte,
    with the same smallest and largest numbers.
    """
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - 8))
        footer = int.from_bytes(opened.read(4), "little") + 8  # what stands before the closing PAR1
        opened.seek(max(0, size - min(footer, 64 * 2**20)))
        return f"{size}-{hashlib.sha256(opened.read()).hexdigest()[:32]}"
