"""Rows of a record batch as inputs of a model: batched by length, checked and padded."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._errors import InputError
from .._format.input_arrays import as_dtype
from .._format.manifest import Manifest
from .._format.names import Arrays
from .arrow_columns import is_list, list_lengths, pad_column, type_error

MAX_PADDING = 0.25  # share of a batch's own elements; more costs more than a further run of the model
FREE_PADDING = 500  # elements that cost less than a run

Lengths = Mapping[str, np.ndarray]  # the length of each row by dynamic axis, the longest if its lists differ


def schema_error(schema: Any, manifest: Manifest) -> str | None:
    """Return the reason if a `pyarrow.Schema` lacks an input, or has an input of another type."""
    if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
        return f"has a column twice: {twice}"
    dynamic = {size for spec in manifest.inputs if spec.name in schema.names for size in spec.shape[1:]}
    for spec in manifest.inputs:
        if spec.name in schema.names:
            if reason := type_error(schema.field(spec.name).type, spec):
                return reason
        elif len(spec.shape) != 1 or manifest.counts.get(spec.name) not in dynamic:
            return f"has no column `{spec.name}`, an input of the model; it has {schema.names}"
    return None


def row_lengths(batch: Any, manifest: Manifest) -> dict[str, np.ndarray]:
    """Return the lengths of rows that may not fit the inputs; 0 for a null."""
    lengths = dict[str, np.ndarray]()
    for spec in manifest.inputs:
        if spec.name in batch.schema.names and is_list(batch.schema.field(spec.name).type):
            column, owners = batch.column(spec.name), np.arange(batch.num_rows)
            sizes = spec.shape[1:]
            while any(isinstance(size, str) for size in sizes):
                inner, longest = list_lengths(column), np.zeros(batch.num_rows, np.int64)
                np.maximum.at(longest, owners, inner)
                if isinstance(sizes[0], str):
                    lengths[sizes[0]] = np.maximum(longest, lengths.get(sizes[0], 0))
                column, owners, sizes = column.flatten(), np.repeat(owners, inner), sizes[1:]
    return lengths


def plan_batches(lengths: Lengths, count: int, paddable: frozenset[str], max_rows: int) -> Iterator[np.ndarray]:
    """Yield `count` rows in batches, the longest first.

    Rows of a batch have equal lengths along axes that are not paddable, and similar lengths along the others: along all
    but the last of them, a row is grouped with rows that are at most 19 % longer.
    """
    is_paddable = np.array([axis in paddable for axis in lengths], bool)
    sizes = np.array([*lengths.values()], np.int64).reshape(len(lengths), count).T
    coarse = [np.floor(4 * np.log2(np.maximum(1, column))) for column in sizes[:, is_paddable].T[:-1]]
    order = np.lexsort([np.zeros(count), *sizes[:, is_paddable].T[-1:], *coarse, *sizes[:, ~is_paddable].T])[::-1]
    start = 0
    while start < count:
        window = sizes[order[start : start + max_rows]]
        own = np.cumsum(np.maximum(1, window).prod(axis=1))
        padded = np.maximum.accumulate(np.maximum(1, window)).prod(axis=1) * np.arange(1, len(window) + 1)
        fits = padded - own <= np.maximum(FREE_PADDING, MAX_PADDING * own)
        fits &= (window == window[0])[:, ~is_paddable].all(axis=1)
        stop = start + (len(window) if fits.all() else int(fits.argmin()))
        yield order[start:stop]
        start = stop


def padded_lengths(lengths: Lengths, manifest: Manifest, paddable: frozenset[str]) -> dict[str, int]:
    """Return the common length of some rows by axis; along a paddable axis the next that the model accepts."""
    common = {axis: int(sizes.max(initial=0)) for axis, sizes in lengths.items()}
    for axis, length in common.items():
        step = manifest.multiples.get(axis, 1)
        if axis in paddable:
            common[axis] = -(-max(length, 1) // step) * step
        elif length % step:
            raise InputError(f"`{axis}` must be a multiple of {step}; it is {length}")
    return common


def pad_rows(batch: Any, manifest: Manifest, lengths: Lengths, padded: Mapping[str, int]) -> Arrays:
    """Return the rows of a record batch as inputs; missing lengths are those of the lists.

    Raises:
        InputError: If a row does not fit the inputs.
    """
    inputs = {
        spec.name: pad_column(batch.column(spec.name), spec, lengths, padded)
        for spec in manifest.inputs
        if spec.name in batch.schema.names
    }
    for spec in manifest.inputs:
        if (symbol := manifest.counts.get(spec.name, "")) in lengths:
            own = as_dtype(f"the length of `{symbol}`", lengths[symbol].astype("uint64"), spec.dtype).reshape(
                -1, *[1] * (len(spec.shape) - 1)
            )
            inputs[spec.name] = np.minimum(inputs.get(spec.name, own), own)  # larger lengths would include padding
    return inputs
