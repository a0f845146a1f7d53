"""Trial runs: axes that may be padded, and whether other rows in the batch change a row.

No manifest records either. Some rows run alone, then with more padding and between other rows, with their own numbers
and with scaled ones: a maximum, say, ignores zeros unless all numbers are negative.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._array_comparison import alike
from .._errors import InputError
from .._format.manifest import Spec
from .._format.names import Arrays
from .._tables.parquet_files import UnreadableFileError, open_parquet, record_batches
from .._tables.rows import pad_rows, padded_lengths, row_lengths
from .row_runner import Runner, strip_padding

FILE_ROWS, TRIAL_ROWS = 6, 18
FACTORS = (1.0, -1.0, 1e-2, 1e2)
# Rounding as a share of a channel's largest value: a sum over another batch has another order.
ROUNDING = {"float32": 1e-4, "float16": 2e-2, "int8": 5e-2}


def try_batching(runner: Runner, files: Sequence[Path], axes: Sequence[str]) -> tuple[list[str], bool]:
    """Return the axes whose padding may change outputs, and whether each row has to run alone."""
    samples = list[Any]()  # record batches of one row
    for file in dict.fromkeys([files[0], files[len(files) // 2], files[-1], *files]):
        if len(samples) < TRIAL_ROWS:
            samples += _sample_rows(runner, file)
    exact = [axis for axis in axes if not _is_unchanged(runner, samples, partial(_single_row, runner, longer=axis))]
    return exact, not _is_unchanged(runner, samples, partial(_between_rows, runner, samples))


def _sample_rows(runner: Runner, file: Path) -> Iterator[Any]:
    """Yield rows of a file's first chunk, from the shortest to the longest."""
    with contextlib.suppress(UnreadableFileError, StopIteration), open_parquet(file) as opened:
        batch = next(record_batches(opened))
        lengths = np.array([np.ones(batch.num_rows), *row_lengths(batch, runner.manifest).values()])
        rows = np.argsort(lengths.sum(axis=0), kind="stable")
        rows = rows[lengths.min(axis=0)[rows] > 0]
        for index in np.unique(np.linspace(0, len(rows) - 1, FILE_ROWS).astype(int)) if len(rows) else ():
            with contextlib.suppress(InputError):
                _single_row(runner, row := batch.slice(int(rows[index]), 1))
                yield row


def _single_row(runner: Runner, row: Any, longer: str | None = None) -> Arrays:
    """Return the inputs of one row, with more than twice the length along the axis `longer`."""
    lengths = row_lengths(row, runner.manifest)
    sizes = {axis: 2 * length + 1 if axis == longer else length for axis, length in lengths.items()}
    padded = padded_lengths(sizes, runner.manifest, frozenset(runner.manifest.multiples))
    return pad_rows(row, runner.manifest, lengths, padded)


def _between_rows(runner: Runner, samples: Sequence[Any], row: Any) -> Arrays:
    """Return the inputs of a row between the values of two other rows."""
    before, alone, after = (_single_row(runner, sample) for sample in (samples[0], row, samples[-1]))
    others = {name: [np.resize(other[name], array.shape) for other in (before, after)] for name, array in alone.items()}
    return {name: np.concatenate([others[name][0], array, others[name][1]]) for name, array in alone.items()}


def _is_unchanged(runner: Runner, samples: Sequence[Any], variant: Callable[[Any], Arrays]) -> bool:
    """Return whether rows run, and give equal outputs in a variant of their batch; zeros and NaN show nothing."""
    is_shown, batches = False, [(row, _single_row(runner, row), variant(row)) for row in samples]
    for factor in FACTORS:
        pairs: list[list[tuple[np.ndarray, ...]]] = [[] for _ in runner.outputs]
        for row, *inputs in batches:
            with contextlib.suppress(Exception):  # a row that fails in the model is an error of the run itself
                runs = [runner.run(_scaled(x, factor)) for x in inputs]
                own = {axis: int(length[0]) for axis, length in row_lengths(row, runner.manifest).items()}
                for spec, outputs, *both in zip(runner.outputs, pairs, *runs, strict=True):
                    outputs.append(tuple(strip_padding(x[len(x) // 2, ...], spec, own) for x in both))
        share = ROUNDING.get(runner.manifest.precision, 0.0)
        if not all(_are_alike(spec, outputs, share) for spec, outputs in zip(runner.outputs, pairs, strict=True)):
            return False
        is_shown |= all(any(map(_is_telling, outputs)) for outputs in pairs)
    return is_shown


def _is_telling(pair: tuple[np.ndarray, ...]) -> bool:
    return pair[0].dtype.kind != "f" or bool(np.any(np.isfinite(pair[0]) & (pair[0] != 0)))


def _are_alike(spec: Spec, pairs: Sequence[tuple[np.ndarray, ...]], share: float) -> bool:
    """Return whether pairs of outputs differ by at most a share of the largest value of their channel."""
    channels = spec.shape[-1] if len(spec.shape) > 1 and isinstance(spec.shape[-1], int) else 1
    values = [np.abs(one.reshape(-1, max(1, channels))) for one, _ in pairs if one.dtype.kind == "f"]
    largest = np.nan_to_num(np.concatenate(values), posinf=0).max(axis=0, initial=0) if values else np.zeros(1)
    return all(alike(other, one, atol=share * largest.astype(float)) for one, other in pairs)


def _scaled(inputs: Arrays, factor: float) -> Arrays:
    return {name: (x * factor).astype(x.dtype) if x.dtype.kind == "f" else x for name, x in inputs.items()}
