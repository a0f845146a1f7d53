"""A part's file in the destination: outputs beside the columns that are no inputs."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .._errors import ExportError
from .._standalone.verify import Spec
from .._whole_file import put_in_place, reason_of
from .columns import blank, to_lists
from .destination import Destination
from .errors import Errors, write_errors
from .parquet import UNREAD, said
from .source import Part

Done = Callable[[int, int], None]  # rows that are written, rows that failed


class PartFile:
    """What is written of one part; it is in the destination once it is whole, its errors before it.

    Attributes:
        schema: The `pyarrow.Schema` of what is written.
        given_up: Why there will be no such file, or `None`: what one part causes is no end to the others.
    """

    def __init__(self, part: Part, destination: Destination, kept: Any, outputs: Iterable[Spec], done: Done) -> None:
        """Begin a file.

        Args:
            part: The part.
            destination: Where it goes.
            kept: The `pyarrow.Schema` of the columns that are passed on.
            outputs: Entries of the outputs in the manifest.
            done: Called with how many rows were written and how many failed.
        """
        import pyarrow as pa

        self._part, self._destination, self._done = part, destination, done
        self._counts = [0, 0]  # rows that were written and that failed, as they were told
        self._target = destination.target(part.name)
        self._partial = destination.partial / f".{uuid.uuid4().hex}.partial"
        self.schema = kept
        for spec in outputs:
            nothing = to_lists(blank(0, spec.dtype), np.zeros((0, len(spec.shape) - 1), np.int64))
            self.schema = self.schema.append(pa.field(spec.name, nothing.type))
        self._errors = Errors()
        self.given_up: str | None = None

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
                self._errors.add(first_row + row, None if names is None else _text(names[row]), problems[row])
        if len(table):
            with self._said():
                self._writer.write(table)
        self._tell(len(table), len(problems))

    def fail_rows(self, rows: range, why: str) -> None:
        """Say of rows that could not even be read why."""
        self._errors.add_rows(rows, why)
        self._tell(0, rows.stop - rows.start)

    @contextlib.contextmanager
    def kept_apart(self) -> Iterator[None]:
        """Give the file up where something goes wrong that only its part can be to blame for, as a lack of memory.

        Raises:
            ExportError: It cannot be written, or the device failed: so it would be for all others.
        """
        try:
            yield
        except ExportError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever pyarrow or NumPy makes of what is in the part
            self.given_up = f"{UNREAD}: {said(error)}"

    def finish(self) -> None:
        """Put the errors in place, and then the file.

        Where it replaces one that lacks rows, the errors come last: they say so until then.
        """
        if self.given_up is None:
            with self.kept_apart():
                self._close()
        if self.given_up is not None:
            self._discard()
            return
        again = self._target.exists()
        with self._said():
            if not again:
                write_errors(self._destination, self._part, self._errors.lines())
            self._target.parent.mkdir(parents=True, exist_ok=True)
            put_in_place(self._partial, self._target)
            if again:
                write_errors(self._destination, self._part, self._errors.lines())

    def _close(self) -> None:
        with self._said():
            self._writer.close()

    def _discard(self) -> None:
        """Leave nothing but a line among the errors."""
        if "_writer" in vars(self):
            with contextlib.suppress(Exception):  # nobody needs it any more
                self._writer.close()
        self._partial.unlink(missing_ok=True)
        written, failed = self._counts
        self._tell(-written, self._part.rows - failed)
        fail_part(self._part, self._destination, str(self.given_up))

    def _tell(self, written: int, failed: int) -> None:
        self._counts[0] += written
        self._counts[1] += failed
        self._done(written, failed)

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


def fail_part(part: Part, destination: Destination, why: str) -> None:
    """Say why nothing of a part could be run."""
    write_errors(destination, part, [(None, None, why)])


def _text(name: Any) -> str | None:
    """Return what a key says, as text; whatever Arrow can hold may be one, and bytes that are none."""
    try:
        told = name.cast("string")
    except (ValueError, NotImplementedError):
        return str(name)
    return told.as_buffer().to_pybytes().decode("utf-8", "backslashreplace") if told.is_valid else None
