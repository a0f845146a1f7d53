"""Rows of a record batch as inputs of a model: checked, batched by length and padded."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._errors import InputError
from .._format.input_arrays import convert_array
from .._format.manifest import Manifest
from .._format.names import Arrays
from .arrow_columns import find_type_error, get_list_lengths, is_list, pad_column

# `plan_batches` sorts rows by length and takes rows from the longest on, as long as the padded elements that it adds
# cost less than a further run of the model:
#
#     rows * product of largest lengths - elements <= max(FREE_PADDING_ELEMENTS, MAX_PADDING_SHARE * elements)
#
# With several paddable axes, one sort order cannot keep all lengths similar. So all of them except the last are sorted
# by size classes, floor(4 * log2(length)): lengths in a class differ by a factor of at most 2 ** (1 / 4) = 1.19. Both
# constants trade computations on padding for the fixed cost of a run.
MAX_PADDING_SHARE = 0.25
FREE_PADDING_ELEMENTS = 500

# Lengths of the rows by dynamic axis, of shape (rows,); the longest list of a row counts.
Lengths = Mapping[str, np.ndarray]


def find_column_error(schema: Any, manifest: Manifest) -> str | None:
    """Return the reason if a column of a `pyarrow.Schema` is missing or has the wrong type, otherwise None."""
    if duplicates := sorted({name for name in schema.names if schema.names.count(name) > 1}):
        return f"has a column twice: {duplicates}"
    dynamic = {size for spec in manifest.inputs if spec.name in schema.names for size in spec.shape[1:]}
    for spec in manifest.inputs:
        if spec.name in schema.names:
            if reason := find_type_error(schema.field(spec.name).type, spec):
                return reason
        elif len(spec.shape) != 1 or manifest.counts.get(spec.name) not in dynamic:
            return f"has no column `{spec.name}`, an input of the model; it has {schema.names}"
    return None


def measure_rows(batch: Any, manifest: Manifest) -> dict[str, np.ndarray]:
    """Return the lengths of the rows of a record batch, before any check; 0 for a null."""
    lengths = dict[str, np.ndarray]()
    for spec in manifest.inputs:
        if spec.name in batch.schema.names and is_list(batch.schema.field(spec.name).type):
            column, rows = batch.column(spec.name), np.arange(batch.num_rows)
            sizes = spec.shape[1:]
            while any(isinstance(size, str) for size in sizes):
                list_sizes, longest = get_list_lengths(column), np.zeros(batch.num_rows, np.int64)
                np.maximum.at(longest, rows, list_sizes)
                if isinstance(sizes[0], str):
                    lengths[sizes[0]] = np.maximum(longest, lengths.get(sizes[0], 0))
                column, rows, sizes = column.flatten(), np.repeat(rows, list_sizes), sizes[1:]
    return lengths


def plan_batches(lengths: Lengths, count: int, paddable: frozenset[str], max_rows: int) -> Iterator[np.ndarray]:
    """Yield indices of rows in batches, the longest rows first.

    Args:
        lengths: Lengths of the rows. Rows of a batch have equal lengths along axes that are not paddable.
        count: Number of rows.
        paddable: Axes that may be padded.
        max_rows: Largest number of rows in a batch.
    """
    is_paddable = np.array([axis in paddable for axis in lengths], bool)
    sizes = np.array([*lengths.values()], np.int64).reshape(len(lengths), count).T
    size_classes = [np.floor(4 * np.log2(np.maximum(1, column))) for column in sizes[:, is_paddable].T[:-1]]
    order = np.lexsort([np.zeros(count), *sizes[:, is_paddable].T[-1:], *size_classes, *sizes[:, ~is_paddable].T])[::-1]
    start = 0
    while start < count:
        candidates = sizes[order[start : start + max_rows]]
        elements = np.cumsum(np.maximum(1, candidates).prod(axis=1))
        largest = np.maximum.accumulate(np.maximum(1, candidates)).prod(axis=1)
        padding = largest * np.arange(1, len(candidates) + 1) - elements
        fits = padding <= np.maximum(FREE_PADDING_ELEMENTS, MAX_PADDING_SHARE * elements)
        fits &= (candidates == candidates[0])[:, ~is_paddable].all(axis=1)
        stop = start + (len(candidates) if fits.all() else int(fits.argmin()))
        yield order[start:stop]
        start = stop


def pad_lengths(lengths: Lengths, manifest: Manifest, paddable: frozenset[str]) -> dict[str, int]:
    """Return the common length of rows by axis; along a paddable axis, the next multiple that the model accepts."""
    common = {axis: int(sizes.max(initial=0)) for axis, sizes in lengths.items()}
    for axis, length in common.items():
        multiple = manifest.multiples.get(axis, 1)
        if axis in paddable:
            common[axis] = -(-max(length, 1) // multiple) * multiple
        elif length % multiple:
            raise InputError(f"`{axis}` must be a multiple of {multiple}; it is {length}")
    return common


def pad_rows(batch: Any, manifest: Manifest, lengths: Lengths, padded: Mapping[str, int]) -> Arrays:
    """Return the rows of a record batch as inputs, with valid lengths; raise `InputError` if a row is invalid."""
    inputs = {
        spec.name: pad_column(batch.column(spec.name), spec, lengths, padded)
        for spec in manifest.inputs
        if spec.name in batch.schema.names
    }
    for spec in manifest.inputs:
        if (symbol := manifest.counts.get(spec.name, "")) in lengths:
            row_values = convert_array(f"the length of `{symbol}`", lengths[symbol].astype("uint64"), spec.dtype)
            row_values = row_values.reshape(-1, *[1] * (len(spec.shape) - 1))
            # A column with larger lengths would include padding.
            inputs[spec.name] = np.minimum(inputs.get(spec.name, row_values), row_values)
    return inputs
