"""Arrow columns of nested lists as NumPy arrays, and back, without a Python object per number."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import InputError
from .._format.input_arrays import as_dtype
from .._format.manifest import Spec
from .._format.names import STRING

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

    lengths = pc.list_value_length(column)
    return np.asarray(lengths.fill_null(0) if lengths.null_count else lengths)


def pad_column(column: Any, spec: Spec, lengths: Mapping[str, np.ndarray], padded: Mapping[Any, int]) -> np.ndarray:
    """Return the rows of a `pyarrow.Array` as one array, padded with zeros or empty strings.

    Args:
        column: Nested lists, or one value per row.
        spec: The input.
        lengths: The length of each row by dynamic axis; lists of another length raise an `InputError`.
        padded: The size of each dynamic axis in the array.
    """
    array = zeros_or_empty([len(column), *(padded.get(size, size) for size in spec.shape[1:])], spec.dtype)
    coordinates = [np.arange(len(column))]  # of the elements, while lists are opened up to the last dynamic axis
    for axis, size in enumerate(spec.shape[1:] if is_list(column.type) else (), 1):
        _check_nulls(column, spec)
        inner, expected = list_lengths(column), lengths[size][coordinates[0]] if isinstance(size, str) else size
        if (inner != expected).any():
            length, needed = np.stack(np.broadcast_arrays(inner, expected), axis=1)[inner != expected][0]
            raise InputError(f"`{spec.name}` must have shape {spec.shape}; a list has {length} values, not {needed}")
        if any(isinstance(other, str) for other in spec.shape[axis:]):
            positions = np.arange(inner.sum()) - np.repeat(np.cumsum(inner) - inner, inner)
            coordinates = [*(np.repeat(before, inner) for before in coordinates), positions]
        column = column.flatten()
    _check_nulls(column, spec)
    values = as_dtype(f"`{spec.name}`", column.to_numpy(zero_copy_only=False), spec.dtype)
    array[tuple(coordinates)] = values.reshape(-1, *array.shape[len(coordinates) :])
    return array


def _check_nulls(column: Any, spec: Spec) -> None:
    if column.null_count:
        raise InputError(f"`{spec.name}` is null, or holds one")


def zeros_or_empty(shape: int | Sequence[Any], dtype: str) -> np.ndarray:
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
