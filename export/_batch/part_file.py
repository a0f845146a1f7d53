"""A part's file in the destination: outputs beside the columns that are no inputs; and a file of its errors."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .._errors import ExportError
from .._standalone.verify import Spec
from .._whole_file import put_in_place, reason_of, whole_file
from .columns import to_lists
from .destination import Destination
from .source import Part

Error = tuple[int | None, str | None, str]  # the row, `None` for the whole part; what the key says of it; and why


class PartFile:
    """What is written of one part; it is in the destination once it is whole, its errors before it."""

    def __init__(self, part: Part, destination: Destination, kept: Any, outputs: Iterable[Spec]) -> None:
        """Begin a file.

        Args:
            part: The part.
            destination: Where it goes.
            kept: The `pyarrow.Schema` of the columns that are passed on.
            outputs: Entries of the outputs in the manifest.
        """
        import pyarrow as pa

        self._part, self._destination = part, destination
        self._target = destination.target(part.name)
        self._partial = destination.partial / f".{uuid.uuid4().hex}.partial"
        self.schema = kept
        for spec in outputs:
            nothing = to_lists(np.zeros(0, spec.dtype), np.zeros((0, len(spec.shape) - 1), np.int64))
            self.schema = self.schema.append(pa.field(spec.name, nothing.type))
        self._errors: list[Error] = []

    @cached_property
    def _writer(self) -> Any:
        """The writer, opened when it is first needed: by then the part before is finished, and stays."""
        from pyarrow import parquet

        # numbers that hardly ever repeat are no larger without a dictionary, and written in half the time
        texts = [field.name for field in self.schema if "string" in str(field.type)]
        return parquet.ParquetWriter(self._partial, self.schema, use_dictionary=texts, write_page_checksum=True)

    def write(self, kept: Any, outputs: list[Any], problems: Mapping[int, str], names: Any, first_row: int) -> None:
        """Write rows, without those that have a problem, which go to the errors.

        Args:
            kept: A `pyarrow.RecordBatch` of the columns that are passed on.
            outputs: A `pyarrow.Array` an output.
            problems: Why a row could not be run, by row of `kept`.
            names: What the key says of each row, or `None`.
            first_row: Which row of the source file the first one is.
        """
        import pyarrow as pa

        table = pa.RecordBatch.from_arrays([*kept.columns, *outputs], schema=self.schema)
        if problems:
            # slices, since not every type of a column that is passed on can be taken from, row by row
            cuts = [-1, *sorted(problems), len(table)]
            good = [table.slice(before + 1, after - before - 1) for before, after in pairwise(cuts)]
            table = pa.Table.from_batches(good, schema=self.schema)
            for row in sorted(problems):
                self._errors.append((first_row + row, None if names is None else _text(names[row]), problems[row]))
        if len(table):
            with self._said():
                self._writer.write(table)

    def fail_rows(self, rows: range, why: str) -> None:
        """Say of rows that could not even be read why."""
        self._errors += [(row, None, why) for row in rows]

    def finish(self) -> None:
        """Put the errors in place, and then the file.

        Where it replaces one that lacks rows, the errors come last: they say so until then.
        """
        again = self._target.exists()
        with self._said():
            self._writer.close()
            if not again:
                write_errors(self._destination, self._part, self._errors)
            self._target.parent.mkdir(parents=True, exist_ok=True)
            put_in_place(self._partial, self._target)
            if again:
                write_errors(self._destination, self._part, self._errors)

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if "_writer" in vars(self):
                with contextlib.suppress(OSError):  # which it would do, and say, when nobody needs it any more
                    self._writer.close()
            raise ExportError(
                f"Cannot write {self._target}: {reason_of(error)}. The parts that are done stay; the same command goes "
                "on from there."
            ) from error


def _text(name: Any) -> str | None:
    """Return what a key says, as text; whatever Arrow can hold may be one."""
    try:
        text: str | None = name.cast("string").as_py()
    except (ValueError, NotImplementedError):
        text = str(name)
    return text


def write_errors(destination: Destination, part: Part, errors: list[Error]) -> None:
    """Write the errors of a part, or remove those of an earlier run."""
    import pyarrow as pa
    from pyarrow import parquet

    file = destination.errors_of(part.name)
    if not errors:
        file.unlink(missing_ok=True)
        return
    rows, keys, reasons = zip(*errors, strict=True)
    columns = {"part": [part.name] * len(errors), "row": rows, "key": keys, "reason": reasons}
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file, folder=destination.partial) as partial:
        parquet.write_table(pa.table(columns, schema=_error_schema()), partial)


def merge_errors(destination: Destination, parts: Iterable[Part]) -> int:
    """Write the errors of all parts to one file, or remove that of an earlier run.

    Returns:
        How many there are.
    """
    from pyarrow import parquet

    found = [file for part in parts if (file := destination.errors_of(part.name)).is_file()]
    if not found:
        destination.errors.unlink(missing_ok=True)
        return 0
    count = 0
    with (
        whole_file(destination.errors, folder=destination.partial) as file,
        parquet.ParquetWriter(file, _error_schema()) as writer,
    ):
        for each in found:
            table = parquet.read_table(each, partitioning=None)
            writer.write_table(table)
            count += len(table)
    return count


def _error_schema() -> Any:
    import pyarrow as pa

    return pa.schema([("part", pa.string()), ("row", pa.int64()), ("key", pa.string()), ("reason", pa.string())])
