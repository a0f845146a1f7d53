"""Arrow columns of nested lists as NumPy arrays, and back, without a Python object per number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .._bundle.arrays import as_dtype
from .._errors import InputError
from .._standalone.verify import STRING, Spec

STRINGS = ("string", "large_string")
# NumPy dtypes of Arrow types: `DataType.to_pandas_dtype` requires pandas before pyarrow 21
NUMBERS = {"bool": "bool", "halffloat": "float16", "float": "float32", "double": "float64"} | {
    f"{kind}{width}": f"{kind}{width}" for kind in ("int", "uint") for width in (8, 16, 32, 64)
}


def type_error(kind: Any, spec: Spec) -> str | None:
    """Return the reason if an Arrow type cannot be an input; an input of one value per row needs no lists."""
    depth, inner = 0, kind
    while is_list(inner):
        depth, inner = depth + 1, inner.value_type
    axes, dtype = len(spec.shape) - 1, NUMBERS.get(str(inner))
    fits = str(inner) in STRINGS if spec.dtype == STRING else dtype and np.can_cast(dtype, spec.dtype, "same_kind")
    if fits and (depth == axes or (depth == 0 and {*spec.shape[1:]} == {1})):
        return None
    needed = f"lists of {spec.dtype}, nested {axes} deep" if axes else spec.dtype
    return f"column `{spec.name}` must hold {needed}, for an input of shape {spec.shape}; it is {kind}"


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def list_lengths(column: Any) -> np.ndarray:
    """Return the length of each list, 0 for a null."""
    import pyarrow.compute as pc

    return np.asarray(pc.list_value_length(column).fill_null(0))


def read_column(column: Any, spec: Spec) -> list[np.ndarray]:
    """Return each row of a `pyarrow.Array` as an array; raise an `InputError` if a row does not fit the input."""
    rows = np.arange(len(column))
    offsets = np.arange(len(column) + 1)  # of the rows in `column`, whose lists are opened axis by axis
    sizes = np.ones((len(column), len(spec.shape) - 1), np.int64)
    for axis, fixed in enumerate(spec.shape[1:] if is_list(column.type) else ()):
        _check_nulls(column, spec)
        lengths, owners = list_lengths(column), np.repeat(rows, np.diff(offsets))
        sizes[:, axis] = fixed if isinstance(fixed, int) else 0
        sizes[owners, axis] = lengths
        if (lengths != sizes[owners, axis]).any():
            raise InputError(f"`{spec.name}` has lists of different lengths side by side")
        if isinstance(fixed, int) and (sizes[:, axis] != fixed).any():
            size = sizes[sizes[:, axis] != fixed, axis][0]
            raise InputError(f"`{spec.name}` must have shape {spec.shape}; it has {size} for {fixed}")
        counts = np.bincount(owners, lengths, len(rows)).astype(np.int64)
        offsets, column = np.concatenate([[0], np.cumsum(counts)]), column.flatten()
    _check_nulls(column, spec)
    values = as_dtype(f"`{spec.name}`", column.to_numpy(zero_copy_only=False), spec.dtype)
    bounds = zip(pairwise(offsets.tolist()), sizes.tolist(), strict=True)
    return [values[start:stop].reshape(size) for (start, stop), size in bounds]


def _check_nulls(column: Any, spec: Spec) -> None:
    if column.null_count:
        raise InputError(f"`{spec.name}` is null, or holds one")


def zeros_or_empty(shape: int | Sequence[int], dtype: str) -> np.ndarray:
    """Return zeros, or empty strings, in a dtype of the manifest."""
    return np.full(shape, "", object) if dtype == STRING else np.zeros(shape, dtype)


def to_lists(arrays: Sequence[np.ndarray], spec: Spec) -> Any:
    """Return a `pyarrow.Array` of nested lists, one per array."""
    import pyarrow as pa

    values = np.concatenate([zeros_or_empty(0, spec.dtype), *(array.ravel() for array in arrays)])
    sizes = np.array([array.shape for array in arrays], np.int64).reshape(len(arrays), len(spec.shape) - 1)
    nested = pa.array(values, pa.string() if spec.dtype == STRING else None)
    for axis in reversed(range(sizes.shape[1])):
        lengths = np.repeat(sizes[:, axis], np.prod(sizes[:, :axis], axis=1, dtype=np.int64))
        nested = pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), nested)
    return nested
