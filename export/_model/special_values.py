"""Values that break operators, each in a row of its own: negative and extreme integers, ties, zeros, infinities, NaN.

What is tried of one input stands in a row in which all others are as usual. Integers are tried as far as Keras gives
finite numbers for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np

from .._standalone.verify import Arrays
from .draws import mask
from .input_sources import Source

FINITE = "special values"
NOT_FINITE = "infinities and NaN"
INFINITY, NAN, TIES = "infinity", "NaN", "ties and zeros"
SMALL = (0, -1, -7)
FIRST_LARGE = 4097  # an integer may be a size, or how often a loop runs: nothing larger where this is more work
BEYOND_FLOAT32 = 2**24 + 1
MOST = 40  # rows

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

    @property
    def kind(self) -> str:
        """What is said of it: infinities are one kind, wherever they stand, and so is NaN."""
        return str(self.value).lstrip("-").split(",")[0] if isinstance(self.value, str) else str(self.value)


def drawn(source: Source, arrays: Sequence[np.ndarray], trials: Iterable[Trial]) -> str:
    """Return in words what golden cases hold of an input: the range of integers with what was tried near it."""
    dtype = arrays[0].dtype
    if dtype.kind == "b":
        return "booleans"
    if source.draw is mask:
        return "zeros and ones"
    if _is_free(source, arrays[0]) and not source.sampled:
        return "normal floats"
    numbers = np.concatenate([array[np.isfinite(array)].ravel() for array in arrays])
    numbers = np.append(numbers, [trial.value for trial in trials if trial.is_near])
    if not numbers.size:
        return "nothing"
    if dtype.kind == "f" and source.ids is None:
        return f"floats {numbers.min():g} to {numbers.max():g}"
    return f"integers {int(numbers.min())} to {int(numbers.max())}"


def finite_values(made: Mapping[str, Source], inputs: Arrays) -> list[tuple[str, Value]]:
    """Return what is tried of each input, by name, that Keras may have finite numbers for."""
    found: list[tuple[str, Value]] = []
    for name, source in made.items():
        array = inputs[name]
        if source.ids is not None:
            found += [(name, value) for value in dict.fromkeys((-1, source.ids.low, source.ids.high))]
        elif array.dtype.kind in "iu" and source.draw is not mask and not source.room:
            ends = (int(np.iinfo(array.dtype).max), int(np.iinfo(array.dtype).min))
            values = ends if source.lengths else (*SMALL, FIRST_LARGE, BEYOND_FLOAT32, *ends)
            found += [(name, value) for value in dict.fromkeys(values)]
        elif _is_free(source, array) and array.ndim > 1 and array[:1].size > 1:
            found.append((name, TIES))
    return [(name, value) for name, value in found if _fits(value, inputs[name].dtype)][:MOST]


def other_values(made: Mapping[str, Source], inputs: Arrays) -> list[tuple[str, Value]]:
    """Return what is tried of each input of floats that is not finite: operators take NaN by its position."""
    values: tuple[Value, ...] = (INFINITY, f"-{INFINITY}", NAN, f"{NAN}, in front")
    names = [name for name, source in made.items() if _is_free(source, inputs[name])]
    return [(name, value) for name in names for value in values][:MOST]


def _is_free(source: Source, array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and source.ids is None and source.draw is not mask


def _fits(value: Value, dtype: np.dtype[Any]) -> bool:
    if isinstance(value, str) or dtype.kind not in "iu":
        return True  # ids in floats
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def with_trials(inputs: Arrays, trials: Iterable[Trial]) -> Arrays:
    """Return inputs with what is tried in its row: integers and some in front, where no length hides them."""
    changed = {name: array.copy() for name, array in inputs.items()}
    for trial in trials:
        array = changed[trial.input]
        row = (array[trial.row : trial.row + 1] if array.ndim else array).reshape(-1)  # a view
        if trial.value == TIES:
            row[1::2] = row[: len(row) // 2 * 2 : 2]
            row[len(row) // 2 :: 3] = 0.0
            row[len(row) // 2 + 1 :: 3] = -0.0
        elif isinstance(trial.value, int):
            row[0] = trial.value
        else:
            sign = -1 if trial.value.startswith("-") else 1
            number = np.nan if trial.kind == NAN else sign * np.inf
            row[0 if sign < 0 or "," in trial.value else len(row) // 2] = number
    return changed


def accepted(trials: Sequence[Trial], inputs: Arrays, run: Run) -> list[Trial]:
    """Return the trials of which Keras gives finite numbers, and that are no more work than usual."""
    large = [trial for trial in trials if isinstance(trial.value, int) and not trial.is_near]
    others = [trial for trial in trials if trial not in large]
    kept = [*_finite(others, inputs, run)]
    if not large or keras.backend.backend() != "tensorflow":  # which alone tells how much work there was
        return kept
    from .._internals.tensorflow_internals import work_of

    usual = work_of(lambda: run(inputs))
    for name in dict.fromkeys(trial.input for trial in large):
        of_it = [trial for trial in large if trial.input == name]
        first = with_trials(inputs, [replace(of_it[0], value=FIRST_LARGE)])
        try:
            found = work_of(lambda first=first: run(first))  # type: ignore[misc]
        except Exception:  # noqa: BLE001 - what raises did not get far, as an index out of range
            found = usual
        if found == usual:
            kept += _finite([trial for trial in of_it if trial.value != FIRST_LARGE], inputs, run)
    return kept


def _finite(trials: Sequence[Trial], inputs: Arrays, run: Run) -> list[Trial]:
    """Return the trials of which Keras gives finite numbers, found at once where that is all."""
    try:
        fine = all(map(_is_finite, run(with_trials(inputs, trials)).values()))
    except Exception:  # noqa: BLE001 - what is no input for this model proves nothing
        fine = False
    if fine:
        return list(trials)
    return [] if len(trials) == 1 else [each for trial in trials for each in _finite([trial], inputs, run)]


def _is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
