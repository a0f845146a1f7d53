"""What the footer of a Parquet file tells of its rows, and whether that can be, before any of them is read.

pyarrow tells it too, but ends the process where the sizes of a column contradict each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Bytes of a number, by Parquet's number of its type; of a text, nobody knows before it is read.
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
# How many times the bytes of its numbers reading takes at most: levels of lists, buffers that grow, and our own arrays.
READING = 4
PACKED = 100  # as of a bundle's arrays: what is packed more than that is hardly meant where it is large
# Of a longer footer this would take seconds, and what it bounds is less beside it.
LONGEST = 16 * 2**20


@dataclass(frozen=True)
class RowGroup:
    """What is told of a row group.

    Attributes:
        rows: How many rows it has.
        columns: Of each column, how many values it has, and how many bytes those take in memory if they are numbers.
    """

    rows: int
    columns: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """How many bytes the numbers take in memory, however well they are packed."""
        return sum(size for _, size in self.columns)

    def problem(self, limit: int, file_bytes: int, flat: list[int]) -> str | None:
        """Return why the rows cannot be read, or `None` if they may be.

        Args:
            limit: How many bytes the tensors of the model may take.
            file_bytes: The size of the file.
            flat: The columns that have a value a row, since there are no lists in them.
        """
        held = max((self.columns[column][0] for column in flat), default=self.rows)
        if held > self.rows:
            return f"its footer tells of {self.rows:,} rows in a row group, and of {held:,} in a column"
        rows = max(1, self.rows)
        if self.size > limit * rows:
            return f"its rows take {self.size / rows / 2**20:,.0f} MiB each, and {limit >> 20} MiB are the limit"
        if READING * self.size > limit and self.size > PACKED * file_bytes:
            return (
                f"its rows unpack to {self.size / 2**20:,.0f} MiB in a row group, of a file of "
                f"{file_bytes / 2**20:,.3f} MiB. Write smaller row groups, or allow more memory"
            )
        return None


def check_rows(metadata: Any) -> None:
    """Check that the rows of a file are those of its row groups.

    Raises:
        ValueError: They are not, or one has fewer than none.
    """
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
        raise ValueError(f"its footer tells of {metadata.num_rows} rows, and its row groups of {sum(counts)}")


def row_groups(file: str | Path) -> list[RowGroup]:
    """Return what the footer of a file tells of its row groups; nothing of a footer that is very long.

    Raises:
        ValueError, IndexError, RecursionError: It is broken.
    """
    with open(file, "rb") as opened:
        end = opened.seek(0, os.SEEK_END) - 8
        opened.seek(max(0, end))
        length = int.from_bytes(opened.read(4), "little")
        if length > LONGEST:
            return []
        opened.seek(max(0, end - length))
        footer = _Thrift(opened.read(length))
    return list(footer.struct({4: lambda: footer.items(lambda: _row_group(footer))}).get(4, []))


def _row_group(footer: _Thrift) -> RowGroup:
    def column() -> tuple[int, int]:
        told = footer.struct({3: lambda: footer.struct({1: footer.number, 5: footer.number})}).get(3, {})
        values = max(0, told.get(5, 0))
        return values, values * _WIDTHS.get(told.get(1, -1), 1)

    told = footer.struct({1: lambda: footer.items(column), 3: footer.number})
    return RowGroup(told.get(3, 0), tuple(told.get(1, ())))


_BINARY, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12
_SIZES = {1: 0, 2: 0, 3: 1, 7: 8}  # booleans, which stand in the head of their field; a byte; a double


class _Thrift:
    """A reader of Thrift's compact protocol, which keeps what it is asked for and skips the rest."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, wanted: dict[int, Callable[[], Any]]) -> dict[int, Any]:
        """Return what functions make of the fields of a struct that have their numbers."""
        found, field = dict[int, Any](), 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self.number()
            take = wanted.get(field)
            if take is None:
                self._skip(head & 15)
            else:
                found[field] = take()
        return found

    def items(self, item: Callable[[], Any]) -> list[Any]:
        """Return what a function makes of each item of a list."""
        count, _ = self._head()
        return [item() for _ in range(count)]

    def number(self) -> int:
        """Return a whole number: of the last bit comes the sign."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _head(self) -> tuple[int, int]:
        """Return how many items a list has, and of which kind they are."""
        head = self._byte()
        return (head >> 4 if head >> 4 < 15 else self._varint()), head & 15

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("its footer is broken")
        return value | byte << shift

    def _skip(self, kind: int) -> None:
        if kind in _SIZES:
            self._at += _SIZES[kind]
        elif kind == _BINARY:
            length = self._varint()  # which moves on too
            self._at += length
        elif kind in (_LIST, _SET):
            count, of = self._head()
            for _ in range(count):
                self._skip(3 if of in (1, 2) else of)  # in a list, a boolean is a byte
                self._check_end()
        elif kind == _MAP:
            raise ValueError("its footer is broken")  # Parquet has none
        elif kind == _STRUCT:
            self.struct({})
        else:
            self._varint()

    def _check_end(self) -> None:
        if self._at > len(self._data):
            raise ValueError("its footer is broken")
