"""A column of nested lists as flat numbers with sizes, and back; without a Python object for any number."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .._bundle.arrays import as_dtype
from .._errors import InputError
from .._standalone.verify import STRING, Spec

Problems = dict[int, str]  # by row, why it cannot be run


@dataclass(frozen=True)
class Ragged:
    """An array a row, each of its own sizes, flat and one after another.

    Attributes:
        values: The numbers of all rows.
        starts: Where each row begins, and at the end where the last one ends.
        sizes: The size of every axis of every row: (rows, axes).
    """

    values: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    def row(self, index: int) -> np.ndarray:
        """Return the array of a row."""
        flat: np.ndarray = self.values[self.starts[index] : self.starts[index + 1]]
        return flat.reshape(self.sizes[index])


def column_problem(kind: Any, spec: Spec) -> str | None:
    """Return why a column of an Arrow type cannot be an input, or `None` if it can."""
    depth, inner = 0, kind
    while _is_list(inner):
        depth, inner = depth + 1, inner.value_type
    axes = len(spec.shape) - 1
    needed = f"lists of {spec.dtype}, nested {axes} deep" if axes else spec.dtype
    if (depth == axes or (depth == 0 and _is_one(spec))) and _fits(str(inner), spec.dtype):
        return None
    return f"column `{spec.name}` must hold {needed}, for an input of shape {spec.shape}; it is {kind}"


def _fits(kind: str, dtype: str) -> bool:
    if dtype == STRING:
        return kind in _STRINGS
    number = _NUMBERS.get(kind)
    return number is not None and np.can_cast(number, dtype, casting="same_kind")


_STRINGS = ("string", "large_string")
_WIDTHS = (8, 16, 32, 64)
# Arrow's names of types, and NumPy's: its own `to_pandas_dtype` wants pandas to be installed, before pyarrow 21
_NUMBERS = {"bool": "bool", "halffloat": "float16", "float": "float32", "double": "float64"} | {
    name: name for width in _WIDTHS for name in (f"int{width}", f"uint{width}")
}


def _is_one(spec: Spec) -> bool:
    """Tell whether a row of an input is one number or string, which a column then may hold without a list."""
    return all(size == 1 for size in spec.shape[1:])


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def read_column(column: Any, spec: Spec) -> tuple[Ragged, Problems]:
    """Return a `pyarrow.Array` as arrays of an input's dtype, and the rows that are none; those hold nothing.

    Args:
        column: Lists nested as deep as the input has axes behind that of the batch; of one number none are needed.
        spec: Name, dtype and shape of the input.
    """
    import pyarrow.compute as pc

    rows, problems = len(column), dict[int, str]()
    starts = np.arange(rows + 1)  # where each row begins, among what `column` holds at this depth
    is_alone = _is_one(spec) and not _is_list(column.type)
    sizes = np.full((rows, len(spec.shape) - 1), int(is_alone))
    for axis, known in enumerate(() if is_alone else spec.shape[1:]):
        _add_nulls(column, starts, spec, problems)
        owners = np.repeat(np.arange(rows), np.diff(starts))
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        sizes[:, axis] = known if isinstance(known, int) else 0  # of a row that has nothing in it
        sizes[owners, axis] = lengths
        for row in np.unique(owners[lengths != sizes[owners, axis]]).tolist():
            problems.setdefault(row, f"`{spec.name}` has lists of different lengths side by side")
        if isinstance(known, int):
            for row in np.flatnonzero(sizes[:, axis] != known).tolist():
                size = f"has {sizes[row, axis]} for {known}"
                problems.setdefault(row, f"`{spec.name}` must have shape {spec.shape}; it {size}")
        counts = np.bincount(owners, lengths, rows).astype(np.int64)
        starts, column = np.concatenate([[0], np.cumsum(counts)]), column.flatten()
    _add_nulls(column, starts, spec, problems)
    values = _numbers(column, starts, spec, problems)
    sizes[list(problems)] = 0
    return Ragged(values, starts, sizes), problems


def _add_nulls(column: Any, starts: np.ndarray, spec: Spec, problems: Problems) -> None:
    if not column.null_count:
        return
    missing = np.flatnonzero(column.is_null())
    for row in np.unique(np.searchsorted(starts, missing, side="right") - 1).tolist():
        problems.setdefault(row, f"`{spec.name}` is null, or holds one")


def _numbers(flat: Any, starts: np.ndarray, spec: Spec, problems: Problems) -> np.ndarray:
    """Return the numbers in the input's dtype; where they do not fit, the row has a problem."""
    if flat.null_count:
        flat = flat.fill_null({"bool": False, **dict.fromkeys(_STRINGS, "")}.get(str(flat.type), 0))
    values = flat.to_numpy(zero_copy_only=False)
    try:
        return as_dtype("", values, spec.dtype)
    except InputError:
        whole = blank(len(values), spec.dtype)
    for row, (start, stop) in enumerate(pairwise(starts)):
        try:
            whole[start:stop] = as_dtype(f"`{spec.name}`", values[start:stop], spec.dtype)
        except InputError as error:
            problems.setdefault(row, str(error).rstrip("."))
    return whole


def blank(shape: int | tuple[int, ...], dtype: str) -> np.ndarray:
    """Return zeros, or empty strings, in a manifest's dtype."""
    return np.full(shape, "", object) if dtype == STRING else np.zeros(shape, dtype)


def to_lists(values: np.ndarray, sizes: np.ndarray) -> Any:
    """Return a `pyarrow.Array` of nested lists, one a row.

    Args:
        values: The numbers of all rows, flat and one after another.
        sizes: The size of every axis of every row: (rows, axes).
    """
    import pyarrow as pa

    made = pa.array(values, pa.string() if values.dtype == object else None)
    for axis in reversed(range(sizes.shape[1])):
        # how many lists of this axis each row has, and how long each is
        lists = np.prod(sizes[:, :axis], axis=1, dtype=np.int64)
        lengths = np.repeat(sizes[:, axis], lists)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)  # windows hold far fewer numbers than that
        made = pa.ListArray.from_arrays(offsets, made)
    return made
