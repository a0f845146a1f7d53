"""Special values to inject into inputs: extreme integers, ties, zeros, infinities, NaN.

Each value is injected into one row of one input; the other inputs of that row are as usual. Integers are tried as far
as Keras gives finite numbers for them.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np

from .._format.names import Arrays, Case
from .dynamic_axes import BATCH
from .edge_cases import CaseInputs
from .golden_cases import MIN_LARGE_INTEGER, Cases, InjectedValue, Run
from .input_generators import InputGenerator

SPECIAL = "special values"
TIES, ZERO = "ties and zeros", "zero"
SMALL_INTEGERS = (0, -1, -7)
INEXACT_IN_FLOAT32 = 2**24 + 1
MAX_STATIC_CASES = 5  # of each input, for a model with a fixed batch
MAX_ROWS, MAX_CHEAP_ELEMENTS = 40, 2**16  # rows, or more if all rows together have fewer numbers

Value = int | str


def yield_special_cases(
    inputs: CaseInputs, golden: Cases, run: Run, graph: Run | None
) -> Iterator[tuple[Case, list[InjectedValue]]]:
    """Yield a case with values that break operators, one value in each row.

    If the batch size is fixed, each value gets a case of its own. Values that Keras or its graph refuses are left out.
    """
    first, axes = golden.cases[0].inputs, inputs.axes
    has_rows = all(axes.shapes[name][:1] == (BATCH,) for name in first)
    values = _choose_special_values(inputs.generators, first)
    trials = [InjectedValue(*value, row + 1 if has_rows else 0) for row, value in enumerate(values)]
    rows = {BATCH: _find_distinct_size(len(trials) + 1, axes.distinct)} if has_rows else {}
    if not trials:
        return
    arrays = inputs.draw(axes.distinct | rows, "full")
    groups = [
        find_finite_values(group, arrays, run) for group in ([trials] if has_rows else [[trial] for trial in trials])
    ]
    if graph is not None:
        groups = [find_runnable_values(group, arrays, graph) for group in groups]
    if not has_rows:
        groups = [
            [trial] for trial in limit_per_input([trial for group in groups for trial in group], MAX_STATIC_CASES)
        ]
    for number, group in enumerate(filter(None, groups), 1):
        changed = inject_values(arrays, group)
        outputs = run_or_none(run, changed)
        if outputs is None:
            return
        yield Case(f"{SPECIAL} {number}" if number > 1 else SPECIAL, changed, outputs), group


def _find_distinct_size(size: int, others: Mapping[str, int]) -> int:
    """Return a size, or the next larger, that no other axis has: Keras may take two that are equal for one."""
    taken = {other for symbol, other in others.items() if symbol != BATCH}
    return next(larger for larger in itertools.count(size) if larger not in taken)


def _choose_special_values(generators: Mapping[str, InputGenerator], inputs: Arrays) -> list[tuple[str, Value]]:
    """Return the values to try of each input, by name: as many as cost little, and as many of each input."""
    values = {name: dict.fromkeys(_list_values(generator, inputs[name])) for name, generator in generators.items()}
    fitting = {
        name: [*filter(partial(_is_in_dtype, inputs[name].dtype), of_input)] for name, of_input in values.items()
    }
    most = max(MAX_ROWS, MAX_CHEAP_ELEMENTS // sum(_view_row(array, 0).size for array in inputs.values()))
    turns = ((turn, name, value) for name, of_input in fitting.items() for turn, value in enumerate(of_input))
    chosen = sorted(turns, key=lambda ranked: ranked[0])[:most]
    return [(name, value) for input_name in fitting for _, name, value in chosen if name == input_name]


def _list_values(generator: InputGenerator, array: np.ndarray) -> Sequence[Value]:
    numbers = _view_row(array, 0).size
    if generator.is_mask or not numbers:
        return ()
    if generator.id_range is not None:
        return (-1, generator.id_range.low, generator.id_range.high)
    if array.dtype.kind in "iu" and generator.lengths is not None:
        ends = np.iinfo(array.dtype)
        return () if generator.lengths.is_of_state else (int(ends.max), int(ends.min))
    if array.dtype.kind in "iu":
        highest = () if generator.sample_id_range is None else (generator.sample_id_range.high,)
        return (*SMALL_INTEGERS, *highest, MIN_LARGE_INTEGER, INEXACT_IN_FLOAT32)
    if array.dtype.kind != "f":
        return ()
    return (*((ZERO, f"-{ZERO}") if numbers < 3 else ()), *((TIES,) if numbers > 1 else ()))


def limit_per_input(trials: Sequence[InjectedValue], few: int) -> list[InjectedValue]:
    """Return the first few trials of each input."""
    return [trial for n, trial in enumerate(trials) if sum(t.input == trial.input for t in trials[:n]) < few]


def _view_row(array: np.ndarray, row: int) -> np.ndarray:
    """Return a view of the numbers of a row, or of a scalar."""
    return (array[row : row + 1] if array.ndim else array).reshape(-1)


def _is_in_dtype(dtype: np.dtype[Any], value: Value) -> bool:
    if isinstance(value, str) or dtype.kind not in "iu":
        return True  # ids in floats
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def inject_values(inputs: Arrays, trials: Iterable[InjectedValue]) -> Arrays:
    """Return inputs with each special value in its row: integers in front, where no length masks them."""
    changed = {name: array.copy() for name, array in inputs.items()}
    for trial in trials:
        row = _view_row(changed[trial.input], trial.row)
        if trial.value == TIES:
            row[1::2] = row[: len(row) // 2 * 2 : 2]
            row[len(row) // 2 :: 3] = 0.0
            row[len(row) // 2 + 1 :: 3] = -0.0
        elif isinstance(trial.value, int):
            row[0] = trial.value
        else:
            row[0 if trial.value.startswith("-") else len(row) // 2] = -0.0 if trial.value.startswith("-") else 0.0
    return changed


def find_finite_values(trials: Sequence[InjectedValue], inputs: Arrays, run: Run) -> list[InjectedValue]:
    """Return the trials for which Keras gives finite numbers, and that are no more work than usual."""
    large = [trial for trial in trials if isinstance(trial.value, int) and not trial.is_small]
    finite = find_runnable_values([trial for trial in trials if trial not in large], inputs, run, _are_finite)
    if not large or keras.backend.backend() != "tensorflow":  # other backends do not count operations
        return finite
    from .._private_api.tensorflow_internals import work_of

    usual = work_of(lambda: run_or_none(run, inputs))
    for name in dict.fromkeys(trial.input for trial in large):
        of_input = [trial for trial in large if trial.input == name]
        first = inject_values(inputs, [replace(of_input[0], value=MIN_LARGE_INTEGER)])
        outputs: list[Arrays | None] = []
        work = work_of(lambda first=first, outputs=outputs: outputs.append(run_or_none(run, first)))  # type: ignore[misc]
        if work == usual or outputs == [None]:  # a model that raises did not get far, as with an index out of range
            largest = [trial for trial in of_input if trial.value != MIN_LARGE_INTEGER]
            finite += find_runnable_values(largest, inputs, run, _are_finite)
    return finite


def find_runnable_values(
    trials: Sequence[InjectedValue], inputs: Arrays, run: Run, is_right: Callable[[Arrays], bool] = lambda _: True
) -> list[InjectedValue]:
    """Return the trials on which `run` does not raise, and gives right outputs; all are tried at once first."""
    outputs = run_or_none(run, inject_values(inputs, trials))
    if outputs is not None and is_right(outputs):
        return list(trials)
    if len(trials) < 2:
        return []
    return [trial for one in trials for trial in find_runnable_values([one], inputs, run, is_right)]


def run_or_none(run: Callable[[Any], Arrays], inputs: Any) -> Arrays | None:
    """Return the outputs of a model, or `None` if the model refuses the inputs."""
    try:
        return run(inputs)
    except Exception:  # noqa: BLE001 - a model may refuse numbers with any exception
        return None


def _are_finite(outputs: Arrays) -> bool:
    return all(array.dtype.kind != "f" or bool(np.isfinite(array).all()) for array in outputs.values())
