"""Special values to inject into inputs: extreme integers, ties, zeros, infinities, NaN.

What is tried of one input stands in a row in which all others are as usual. Integers are tried as far as Keras gives
finite numbers for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import keras
import numpy as np

from .._format.names import Arrays
from .input_generators import Source
from .random_inputs import mask, normal

SPECIAL = "special values"
TIES, ZERO = "ties and zeros", "zero"
SMALL = (0, -1, -7)
FIRST_LARGE = 4097  # an integer may be a size, or how often a loop runs: nothing larger where this is more work
BEYOND_FLOAT32 = 2**24 + 1
MOST, CHEAP = 40, 2**16  # rows, or as many as have so many numbers

Value = int | str
Run = Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class Trial:
    """A value in one place of an input, of which there is one row.

    Attributes:
        input: The input.
        value: The integer, or the kind of value.
        row: Its index in the batch.
    """

    input: str
    value: Value
    row: int

    @property
    def is_near(self) -> bool:
        """Whether it is an integer near those that are usual."""
        return isinstance(self.value, int) and abs(self.value) < FIRST_LARGE


def drawn(source: Source, arrays: Sequence[np.ndarray], trials: Iterable[Trial]) -> str:
    """Return in words what golden cases hold of an input: the range of integers with what was tried near it."""
    dtype = arrays[0].dtype
    if dtype.kind == "b":
        return "booleans"
    if source.words is not None:
        seen = {*itertools.chain(*(array.ravel() for array in arrays))}
        return (
            f"{len(seen)} different strings, {sum(not text.isascii() for text in seen)} with characters outside ASCII"
        )
    if source.draw is mask:
        return "zeros and ones"
    if source.draw is normal:
        return "normal floats"
    numbers = np.concatenate([array[np.isfinite(array)].ravel() for array in arrays])
    numbers = np.append(numbers, [trial.value for trial in trials if trial.is_near])
    if not numbers.size:
        return "nothing"
    if dtype.kind == "f" and source.ids is None:
        return f"floats {numbers.min():g} to {numbers.max():g}"
    return f"integers {int(numbers.min())} to {int(numbers.max())}"


def special_values(made: Mapping[str, Source], inputs: Arrays) -> list[tuple[str, Value]]:
    """Return what is tried of each input, by name, that Keras may have finite numbers for."""
    return _as_many(inputs, {name: _values(source, inputs[name]) for name, source in made.items()})


def _values(source: Source, array: np.ndarray) -> Sequence[Value]:
    if source.ids is not None:
        return (-1, source.ids.low, source.ids.high)
    if array.dtype.kind in "iu" and source.draw is not mask and not source.appended:
        if source.lengths:
            return (int(np.iinfo(array.dtype).max), int(np.iinfo(array.dtype).min))
        highest = () if source.table is None else (source.table.high,)
        return (*SMALL, *highest, FIRST_LARGE, BEYOND_FLOAT32)
    if array.dtype.kind != "f" or source.draw is mask:
        return ()
    numbers = _row_of(array, 0).size
    return (*((ZERO, f"-{ZERO}") if numbers < 3 else ()), *((TIES,) if numbers > 1 else ()))


def _as_many(inputs: Arrays, values: Mapping[str, Sequence[Value]]) -> list[tuple[str, Value]]:
    """Return values by input, as many as cost little: where that is not all, as many of each input."""
    fitting = {name: [*filter(partial(_fits, inputs[name].dtype), dict.fromkeys(of))] for name, of in values.items()}
    most = max(MOST, CHEAP // sum(_row_of(array, 0).size for array in inputs.values()))
    turns = ((turn, name, one) for name, of in fitting.items() for turn, one in enumerate(of))
    chosen = sorted(turns, key=lambda each: each[0])[:most]
    return [(name, one) for each in fitting for _, name, one in chosen if name == each]


def few_of_each(trials: Iterable[Trial], few: int) -> list[Trial]:
    """Return the first so many trials of each input."""
    listed = list(trials)
    return [each for number, each in enumerate(listed) if sum(t.input == each.input for t in listed[:number]) < few]


def _row_of(array: np.ndarray, row: int) -> np.ndarray:
    """Return the numbers of a row, or of all there is, as a view."""
    return (array[row : row + 1] if array.ndim else array).reshape(-1)


def _fits(dtype: np.dtype[Any], value: Value) -> bool:
    if isinstance(value, str) or dtype.kind not in "iu":
        return True  # ids in floats
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def with_trials(inputs: Arrays, trials: Iterable[Trial]) -> Arrays:
    """Return inputs with each special value in its row: integers in front, where no length masks them."""
    changed = {name: array.copy() for name, array in inputs.items()}
    for trial in trials:
        row = _row_of(changed[trial.input], trial.row)
        if trial.value == TIES:
            row[1::2] = row[: len(row) // 2 * 2 : 2]
            row[len(row) // 2 :: 3] = 0.0
            row[len(row) // 2 + 1 :: 3] = -0.0
        elif isinstance(trial.value, int):
            row[0] = trial.value
        else:
            row[0 if trial.value.startswith("-") else len(row) // 2] = -0.0 if trial.value.startswith("-") else 0.0
    return changed


def accepted(trials: Sequence[Trial], inputs: Arrays, run: Run) -> list[Trial]:
    """Return the trials of which Keras gives finite numbers, and that are no more work than usual."""
    large = [trial for trial in trials if isinstance(trial.value, int) and not trial.is_near]
    others = [trial for trial in trials if trial not in large]
    kept = that_run(others, inputs, run, are_finite)
    if not large or keras.backend.backend() != "tensorflow":  # which alone tells how much work there was
        return kept
    from .._private_api.tensorflow_internals import work_of

    usual = work_of(lambda: run(inputs))
    for name in dict.fromkeys(trial.input for trial in large):
        of_it = [trial for trial in large if trial.input == name]
        first = with_trials(inputs, [replace(of_it[0], value=FIRST_LARGE)])
        try:
            found = work_of(lambda first=first: run(first))  # type: ignore[misc]
        except Exception:  # noqa: BLE001 - what raises did not get far, as an index out of range
            found = usual
        if found == usual:
            wanted = [trial for trial in of_it if trial.value != FIRST_LARGE]
            kept += that_run(wanted, inputs, run, are_finite)
    return kept


def that_run(
    trials: Sequence[Trial], inputs: Arrays, run: Run, is_right: Callable[[Arrays], bool] = lambda _: True
) -> list[Trial]:
    """Return the trials that run, and give what is right: found at once where that is all."""
    try:
        fine = is_right(run(with_trials(inputs, trials)))
    except Exception:  # noqa: BLE001 - what is no input for this model tells nothing
        fine = False
    if fine:
        return list(trials)
    return [] if len(trials) < 2 else [each for one in trials for each in that_run([one], inputs, run, is_right)]


def are_finite(outputs: Arrays) -> bool:
    """Tell whether no float is infinite or NaN."""
    return all(array.dtype.kind != "f" or bool(np.isfinite(array).all()) for array in outputs.values())
