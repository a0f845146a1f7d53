"""Conversion of Arrow columns of nested lists to NumPy arrays, and back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._errors import InputError
from .._format.input_arrays import convert_array
from .._format.manifest import Spec
from .._format.names import STRING

# Arrow stores the elements of all lists in one flat array, with offsets. Both are converted as arrays, without a Python
# object for each element.

STRING_TYPES = ("string", "large_string")
# By the text of an Arrow type, since `DataType.to_pandas_dtype` requires pandas before pyarrow 21.
NUMPY_DTYPES = {"bool": "bool", "halffloat": "float16", "float": "float32", "double": "float64"} | {
    f"{kind}{width}": f"{kind}{width}" for kind in ("int", "uint") for width in (8, 16, 32, 64)
}


def find_type_error(arrow_type: Any, spec: Spec) -> str | None:
    """Return the reason if a column of an Arrow type cannot be an input, otherwise None."""
    depth, value_type = 0, arrow_type
    while is_list(value_type):
        depth, value_type = depth + 1, value_type.value_type
    axes, dtype = len(spec.shape) - 1, NUMPY_DTYPES.get(str(value_type))
    if spec.dtype == STRING:
        fits = str(value_type) in STRING_TYPES
    else:
        fits = dtype is not None and np.can_cast(dtype, spec.dtype, "same_kind")
    # An input with one value in each row, of shape (B, 1), may be a column without lists.
    if fits and (depth == axes or (depth == 0 and {*spec.shape[1:]} == {1})):
        return None
    expected = f"lists of {spec.dtype}, nested {axes} deep" if axes else spec.dtype
    return f"column `{spec.name}` must hold {expected}, for an input of shape {spec.shape}; it is {arrow_type}"


def is_list(arrow_type: Any) -> bool:
    """Return True if an Arrow type is a list."""
    from pyarrow import types

    return bool(types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type))


def get_list_lengths(column: Any) -> np.ndarray:
    """Return the length of each list of a column, 0 for a null: an int array of shape (rows,)."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column)
    return np.asarray(lengths.fill_null(0) if lengths.null_count else lengths)


def pad_column(column: Any, spec: Spec, lengths: Mapping[str, np.ndarray], padded: Mapping[Any, int]) -> np.ndarray:
    """Convert a column to one array of shape (rows, ...), padded with zeros or empty strings.

    Args:
        column: `pyarrow.Array` of nested lists, or of one value per row.
        spec: The input.
        lengths: Lengths of the rows by dynamic axis, of shape (rows,); a list of another length raises an `InputError`.
        padded: Size of each dynamic axis in the array.
    """
    array = make_padding([len(column), *(padded.get(size, size) for size in spec.shape[1:])], spec.dtype)
    # Each level of lists is flattened in turn. `coordinates` are the indices of the lists in `array`, one array for
    # each axis so far: the coordinates of a list are repeated for its items, and the position in the list is appended.
    # Axes after the last dynamic one are copied as a block.
    coordinates = [np.arange(len(column))]
    for axis, size in enumerate(spec.shape[1:] if is_list(column.type) else (), 1):
        _check_nulls(column, spec)
        counts, expected = get_list_lengths(column), lengths[size][coordinates[0]] if isinstance(size, str) else size
        if (counts != expected).any():
            count, length = np.stack(np.broadcast_arrays(counts, expected), axis=1)[counts != expected][0]
            raise InputError(f"`{spec.name}` must have shape {spec.shape}; a list has {count} values, not {length}")
        if any(isinstance(later_size, str) for later_size in spec.shape[axis:]):
            positions = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            coordinates = [*(np.repeat(index, counts) for index in coordinates), positions]
        column = column.flatten()
    _check_nulls(column, spec)
    values = convert_array(f"`{spec.name}`", column.to_numpy(zero_copy_only=False), spec.dtype)
    array[tuple(coordinates)] = values.reshape(-1, *array.shape[len(coordinates) :])
    return array


def _check_nulls(column: Any, spec: Spec) -> None:
    if column.null_count:
        raise InputError(f"`{spec.name}` is null or contains a null")


def make_padding(shape: int | Sequence[Any], dtype: str) -> np.ndarray:
    """Return an array of zeros, or of empty strings, for a dtype of the manifest."""
    return np.full(shape, "", object) if dtype == STRING else np.zeros(shape, dtype)


def to_lists(arrays: Sequence[np.ndarray], spec: Spec) -> Any:
    """Convert arrays, one for each row, to a `pyarrow.Array` of nested lists."""
    import pyarrow as pa

    values = np.concatenate([make_padding(0, spec.dtype), *(array.ravel() for array in arrays)])
    sizes = np.array([array.shape for array in arrays], np.int64).reshape(len(arrays), len(spec.shape) - 1)
    nested = pa.array(values, pa.string() if spec.dtype == STRING else None)
    for axis in reversed(range(sizes.shape[1])):
        lengths = np.repeat(sizes[:, axis], np.prod(sizes[:, :axis], axis=1, dtype=np.int64))
        nested = pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), nested)
    return nested
