"""The table of errors: a line for each row that failed, or for a run of rows, or for a whole part; and why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .._whole_file import whole_file
from .destination import Destination
from .parquet import as_text, open_parquet
from .source import Part

Error = tuple[int | None, str | None, str]  # the first row, `None` for the whole part; what the key says of it; and why

# Rows that could not be read are one line if they are more than these: a footer may tell of any number.
ALONE = 1000
# Lines of a part; whatever else fails in it is told in one more.
MOST = 100_000
FIRST, LONGEST = 3, 200  # parts that a message names, and letters of each reason


class Errors:
    """What failed of a part."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lines: list[Error] = []
        self._beyond: list[tuple[int, str]] = []  # the first and the last row of those that no line is for
        self._more = 0

    def add(self, row: int, key: str | None, why: str) -> None:
        """Say why a row failed."""
        if len(self._lines) < MOST:
            self._lines.append((row, key, why))
            return
        self._more += 1
        self._beyond[1:] = [(row, why)]

    def add_rows(self, rows: range, why: str) -> None:
        """Say why rows failed that could not even be read; of no rows, why the part may lack some."""
        if not _length(rows):
            self._lines.append((None, None, why))
            return
        if _length(rows) > ALONE or len(self._lines) >= MOST:
            self._lines.append((rows.start, None, f"rows {rows.start} to {rows.stop - 1}: {why}"))
            return
        self._lines += [(row, None, why) for row in rows]

    def lines(self) -> list[Error]:
        """Return the lines of the table."""
        if not self._beyond:
            return self._lines
        (first, why), (last, _) = self._beyond[0], self._beyond[-1]
        return [*self._lines, (first, None, f"{self._more} rows of {first} to {last}: {why}")]


def _length(rows: range) -> int:
    return rows.stop - rows.start  # `len` takes 63 bits, and less on some machines


def write_errors(destination: Destination, part: Part, errors: list[Error]) -> None:
    """Write the errors of a part, or remove those of an earlier run."""
    import pyarrow as pa
    from pyarrow import parquet

    file = destination.errors_of(part.name)
    if not errors:
        file.unlink(missing_ok=True)
        return
    rows, keys, reasons = zip(*errors, strict=True)
    columns = {
        "part": [as_text(part.name)] * len(errors),
        "row": rows,
        "key": [None if key is None else as_text(key) for key in keys],
        "reason": [as_text(reason) for reason in reasons],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file, folder=destination.partial) as partial:
        parquet.write_table(pa.table(columns, schema=_schema()), partial)


def merge_errors(destination: Destination, parts: Iterable[Part]) -> int:
    """Write the errors of all parts to one file, or remove that of an earlier run.

    Returns:
        How many lines it has.
    """
    from pyarrow import parquet

    found = [file for part in parts if (file := destination.errors_of(part.name)).is_file()]
    if not found:
        destination.errors.unlink(missing_ok=True)
        return 0
    count = 0
    with (
        whole_file(destination.errors, folder=destination.partial) as file,
        parquet.ParquetWriter(file, _schema()) as writer,
    ):
        for each in found:
            with open_parquet(each) as opened:
                table = opened.read()
            writer.write_table(table)
            count += len(table)
    return count


def first_errors(file: Path) -> list[str]:
    """Return what the table of errors says first of each of its first parts, each cut where it is long."""
    found: dict[str, str] = {}
    with open_parquet(file) as opened:
        for batch in opened.iter_batches(columns=["part", "row", "reason"]):
            for part, row, reason in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                place = "" if row is None or reason.startswith("rows ") else f"row {row}: "
                found.setdefault(part, _cut(f"{part}: {place}{reason}"))
                if len(found) == FIRST:
                    return list(found.values())
    return list(found.values())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("part", pa.string()), ("row", pa.int64()), ("key", pa.string()), ("reason", pa.string())])
