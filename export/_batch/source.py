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
from .footer import check_rows, row_groups
from .parquet import READ_ERRORS, UNREAD, check_regular, open_parquet, said

# A file of more is cut between its row groups: what a killed run loses is at most a part, and parts go to workers.
PART_BYTES = 128 * 2**20
SLICES, SLICE = 16, 2**16
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
        row_bytes: How many bytes the numbers of a row take in memory, by the footer.
        problem: Why it cannot be read at all, or `None`.
    """

    name: str
    path: str
    groups: tuple[int, int] = (0, 0)
    first_row: int = 0
    rows: int = 0
    fingerprint: str = ""
    row_bytes: float = 1
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in the manifest of a run: not where the file lies, which may be another place by then."""
        kept = asdict(self)
        return {name: kept[name] for name in ("name", "rows", "fingerprint")}


def find_parts(source: str | Path, limit: int) -> list[Part]:
    """Return the parts of a file, of a folder and those below it, or of what a pattern matches, in order of name.

    In folders, files whose names begin with `_` or `.` are left out, as Spark and Arrow do.

    Args:
        source: The file, folder or pattern.
        limit: How many bytes the tensors of the model may take: rows that must take more cannot be read.

    Raises:
        InputError: There is no such file, or none of Parquet in the folder.
    """
    files, root = _files(str(source))
    if hidden := [file for file in files if file.name[0] in "_."]:
        raise InputError(f"{hidden[0]} begins with `_` or `.`, as what readers of folders leave out. Rename it.")
    return [part for file in files for part in _parts_of(file, PurePosixPath(file.relative_to(root).as_posix()), limit)]


def _files(source: str) -> tuple[list[Path], Path]:
    path = Path(os.path.abspath(source))
    if path.is_file():
        return [path], path.parent
    if path.is_dir() and source:
        found, root = set(_in_folder(path)), path
    elif not glob.has_magic(source):
        raise InputError(f"There is no file or folder {source or repr(source)}.")
    else:
        matched = [Path(os.path.abspath(each)) for each in glob.glob(source, recursive=True)]
        found = {file for each in matched for file in (_in_folder(each) if each.is_dir() else [each])}
        root = Path(os.path.commonpath([file.parent for file in found])) if found else path
    if not found:
        if not path.is_dir():
            raise InputError(f"No file matches {source}.")
        raise InputError(f"{source} holds no Parquet: no file in it or below ends in {', '.join(SUFFIXES)}.")
    return sorted(found), root


def _in_folder(folder: Path) -> Iterator[Path]:
    """Yield the files of Parquet in a folder and those below it, also where a link leads, but not in circles."""
    entered = set()

    def refuse(error: OSError) -> None:
        raise InputError(f"Cannot read {error.filename}: {error.strerror}.") from error

    for above, folders, names in os.walk(folder, followlinks=True, onerror=refuse):
        entered.add(os.path.realpath(above))
        folders[:] = [
            name for name in folders if name[0] not in "_." and os.path.realpath(Path(above, name)) not in entered
        ]
        yield from (Path(above, name) for name in names if name[0] not in "_." and name.lower().endswith(SUFFIXES))


def _parts_of(file: Path, name: PurePosixPath, limit: int) -> list[Part]:
    fingerprint = ""
    try:
        fingerprint = _fingerprint(file)
        with open_parquet(file) as opened:
            check_rows(opened.metadata)
            runs, told = list(_runs(opened.metadata)), row_groups(file)
            levels = [opened.schema.column(index).max_repetition_level for index in range(len(opened.schema))]
        flat, size = [index for index, level in enumerate(levels) if not level], file.stat().st_size
        problems = [group.problem(limit, size, flat) for group in told]
    except READ_ERRORS as error:
        return [Part(str(name), str(file), fingerprint=fingerprint, problem=f"{UNREAD}: {said(error)}")]
    parts, first_row = [], 0
    for number, (groups, rows) in enumerate(runs):
        # a folder in place of the file: no other file of the source can be called so
        own = name if len(runs) == 1 else name / f"part-{number:05d}.parquet"
        row_bytes = max((group.size / max(1, group.rows) for group in told[slice(*groups)]), default=1)
        problem = next((f"{UNREAD}: {why}" for why in problems[slice(*groups)] if why), None)
        parts.append(Part(str(own), str(file), groups, first_row, rows, fingerprint, max(1, row_bytes), problem))
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
    """Return the size of a file and a hash of its end and of slices all over it.

    The end says how large each column is, packed, and more. The slices tell numbers apart that take the same room, as
    ids do; not all of the file is read, since that takes as long as running it may.
    """
    check_regular(file)
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        found = hashlib.sha256()
        for start in [*(size * part // SLICES for part in range(SLICES)), max(0, size - SLICE)]:
            opened.seek(start)
            found.update(opened.read(SLICE))
    return f"{size}-{found.hexdigest()[:32]}"
