"""Probe runs that find axes whose padding changes outputs, and models whose outputs depend on other rows of a batch."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._array_comparison import arrays_match
from .._errors import InputError
from .._format.manifest import Spec
from .._format.names import Arrays
from .._tables.parquet_files import UnreadableFileError, iterate_batches, open_parquet
from .._tables.rows import measure_rows, pad_lengths, pad_rows
from .row_runner import RowRunner, strip_padding

# A manifest records neither, so both are measured on sample rows. Each row runs alone, then padded to more than twice
# its length along one axis, and between two other rows. The outputs of the row must stay equal up to rounding. The
# floats are also scaled, since padding may have no effect on the original values: a maximum ignores zeros unless all
# values are negative. Outputs that are only zeros or NaN prove nothing; an axis without a conclusive output counts as
# changed.
MAX_FILE_ROWS, MAX_ROWS = 6, 18  # sample rows
SCALE_FACTORS = (1.0, -1.0, 1e-2, 1e2)
# Allowed difference as a share of a channel's largest magnitude: a batch of another size is summed in another order.
# The shares are far above the epsilon of a precision, and below the usual effect of padding that enters a result.
ROUNDING_SHARES = {"float32": 1e-4, "float16": 2e-2, "int8": 5e-2}


def find_batching_rules(runner: RowRunner, files: Sequence[Path], axes: Sequence[str]) -> tuple[list[str], bool]:
    """Return the axes whose padding may change outputs, and True if every row must run alone."""
    samples = list[Any]()  # record batches of one row
    for file in dict.fromkeys([files[0], files[len(files) // 2], files[-1], *files]):
        if len(samples) < MAX_ROWS:
            samples += _sample_rows(runner, file)
    variants = {axis: partial(_make_single_row, runner, longer=axis) for axis in axes}
    exact = [axis for axis, variant in variants.items() if not _is_unchanged(runner, samples, variant)]
    return exact, not _is_unchanged(runner, samples, partial(_put_between_rows, runner, samples))


def _sample_rows(runner: RowRunner, file: Path) -> Iterator[Any]:
    """Yield record batches of one row from a file's first chunk, from the shortest to the longest row."""
    with contextlib.suppress(UnreadableFileError, StopIteration), open_parquet(file) as parquet_file:
        batch = next(iterate_batches(parquet_file))
        lengths = np.array([np.ones(batch.num_rows), *measure_rows(batch, runner.manifest).values()])
        rows = np.argsort(lengths.sum(axis=0), kind="stable")
        rows = rows[lengths.min(axis=0)[rows] > 0]
        for index in np.unique(np.linspace(0, len(rows) - 1, MAX_FILE_ROWS).astype(int)) if len(rows) else ():
            with contextlib.suppress(InputError):
                _make_single_row(runner, row := batch.slice(int(rows[index]), 1))
                yield row


def _make_single_row(runner: RowRunner, row: Any, longer: str | None = None) -> Arrays:
    """Build the inputs of one row, padded to more than twice its length along the axis `longer`."""
    lengths = measure_rows(row, runner.manifest)
    sizes = {axis: 2 * length + 1 if axis == longer else length for axis, length in lengths.items()}
    padded = pad_lengths(sizes, runner.manifest, frozenset(runner.manifest.multiples))
    return pad_rows(row, runner.manifest, lengths, padded)


def _put_between_rows(runner: RowRunner, samples: Sequence[Any], row: Any) -> Arrays:
    """Build a batch of three rows: the first sample, a row, and the last sample, resized to the shape of the row."""
    inputs, *neighbours = (_make_single_row(runner, sample) for sample in (row, samples[0], samples[-1]))
    batch = {}
    for name, array in inputs.items():
        first, last = (np.resize(neighbour[name], array.shape) for neighbour in neighbours)
        batch[name] = np.concatenate([first, array, last])
    return batch


def _is_unchanged(runner: RowRunner, samples: Sequence[Any], variant: Callable[[Any], Arrays]) -> bool:
    """Return True if the outputs of rows are equal in a variant of their inputs, and conclusive."""
    is_conclusive, batches = False, [(row, _make_single_row(runner, row), variant(row)) for row in samples]
    for factor in SCALE_FACTORS:
        pairs: list[list[tuple[np.ndarray, ...]]] = [[] for _ in runner.outputs]
        for row, *inputs in batches:
            # A row that fails in the model proves nothing here; the run lists it as an error.
            with contextlib.suppress(Exception):
                runs = [runner.run(_scale_floats(arrays, factor)) for arrays in inputs]
                lengths = {axis: int(length[0]) for axis, length in measure_rows(row, runner.manifest).items()}
                for spec, outputs, *arrays in zip(runner.outputs, pairs, *runs, strict=True):
                    # The row is alone at index 0, or in the middle of three.
                    outputs.append(tuple(strip_padding(array[len(array) // 2, ...], spec, lengths) for array in arrays))
        share = ROUNDING_SHARES.get(runner.manifest.precision, 0.0)
        if not all(_are_close(spec, outputs, share) for spec, outputs in zip(runner.outputs, pairs, strict=True)):
            return False
        is_conclusive |= all(any(map(_is_conclusive, outputs)) for outputs in pairs)
    return is_conclusive


def _is_conclusive(pair: tuple[np.ndarray, ...]) -> bool:
    return pair[0].dtype.kind != "f" or bool(np.any(np.isfinite(pair[0]) & (pair[0] != 0)))


def _are_close(spec: Spec, pairs: Sequence[tuple[np.ndarray, ...]], share: float) -> bool:
    """Return True if pairs of outputs differ by at most a share of the largest magnitude of their channel."""
    channels = spec.shape[-1] if len(spec.shape) > 1 and isinstance(spec.shape[-1], int) else 1
    values = [np.abs(expected.reshape(-1, max(1, channels))) for expected, _ in pairs if expected.dtype.kind == "f"]
    largest = np.nan_to_num(np.concatenate(values), posinf=0).max(axis=0, initial=0) if values else np.zeros(1)
    return all(arrays_match(actual, expected, atol=share * largest.astype(float)) for expected, actual in pairs)


def _scale_floats(inputs: Arrays, factor: float) -> Arrays:
    floats = {name: array for name, array in inputs.items() if array.dtype.kind == "f"}
    return inputs | {name: (array * factor).astype(array.dtype) for name, array in floats.items()}
