"""Special values to inject into inputs: extreme ids and integers, ties and zeros of both signs.

Each value is injected into one row of one input; the other inputs of that row keep ordinary values. A value is dropped
if Keras raises or returns NaN or infinity for it. All values are tested in one run, and one by one only if that fails.
Integers from MIN_LARGE_INTEGER on are dropped if that integer makes Keras execute more operations than ordinary values.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from .._format.names import Arrays, Case
from .dynamic_axes import BATCH
from .edge_cases import CaseInputs
from .golden_cases import MIN_LARGE_INTEGER, GoldenCases, InjectedValue, Run
from .input_generators import InputGenerator

SPECIAL_VALUES = "special values"
TIES, ZERO = "ties and zeros", "zero"
SMALL_INTEGERS = (0, -1, -7)
# The smallest positive integer that float32 cannot represent: a lookup or comparison in float32 finds 2**24.
INEXACT_IN_FLOAT32 = 2**24 + 1
MAX_STATIC_CASES = 5  # per input, for a model with a static batch
MAX_ROWS, MAX_CHEAP_ELEMENTS = 40, 2**16  # more rows if they have few elements

Value = int | str
SpecialCase = tuple[Case, list[InjectedValue]]


def yield_special_cases(inputs: CaseInputs, golden: GoldenCases, run: Run, graph: Run | None) -> Iterator[SpecialCase]:
    """Yield a case with one special value in each row and its values, or a case for each value if the batch is static.

    Values on which Keras or its graph fails are omitted.
    """
    first_inputs, axes = golden.cases[0].inputs, inputs.axes
    has_rows = all(axes.shapes[name][:1] == (BATCH,) for name in first_inputs)
    values = _choose_special_values(inputs.generators, first_inputs)
    injections = [InjectedValue(*value, row + 1 if has_rows else 0) for row, value in enumerate(values)]
    rows = {BATCH: _find_distinct_size(len(injections) + 1, axes.distinct)} if has_rows else {}
    if not injections:
        return
    arrays = inputs.draw(axes.distinct | rows, "full")
    candidates = [injections] if has_rows else [[injection] for injection in injections]
    groups = [find_finite_values(group, arrays, run) for group in candidates]
    if graph is not None:
        groups = [find_runnable_values(group, arrays, graph) for group in groups]
    if not has_rows:
        remaining_injections = [injection for group in groups for injection in group]
        groups = [[injection] for injection in limit_per_input(remaining_injections, MAX_STATIC_CASES)]
    for number, group in enumerate(filter(None, groups), 1):
        injected_inputs = inject_values(arrays, group)
        outputs = run_or_none(run, injected_inputs)
        if outputs is None:
            return
        yield Case(f"{SPECIAL_VALUES} {number}" if number > 1 else SPECIAL_VALUES, injected_inputs, outputs), group


def _find_distinct_size(size: int, axis_sizes: Mapping[str, int]) -> int:
    """Return the smallest size from `size` on that no other axis has: Keras may confuse axes of equal size."""
    used_sizes = {other for symbol, other in axis_sizes.items() if symbol != BATCH}
    return next(larger for larger in itertools.count(size) if larger not in used_sizes)


def _choose_special_values(generators: Mapping[str, InputGenerator], inputs: Arrays) -> list[tuple[str, Value]]:
    """Return pairs of an input name and a value, in turns from all inputs until the rows are used up."""
    fitting_values: dict[str, list[Value]] = {}
    for name, generator in generators.items():
        candidates = dict.fromkeys(_list_values(generator, inputs[name]))
        fitting_values[name] = [value for value in candidates if _is_in_dtype(inputs[name].dtype, value)]
    max_rows = max(MAX_ROWS, MAX_CHEAP_ELEMENTS // sum(_view_row(array, 0).size for array in inputs.values()))
    ranked = ((rank, name, value) for name, values in fitting_values.items() for rank, value in enumerate(values))
    chosen_values = sorted(ranked, key=lambda triple: triple[0])[:max_rows]
    return [(name, value) for input_name in fitting_values for _, name, value in chosen_values if name == input_name]


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


def limit_per_input(injections: Sequence[InjectedValue], max_values: int) -> list[InjectedValue]:
    """Return the first `few` values of each input."""
    names = [injection.input for injection in injections]
    return [injections[index] for index, name in enumerate(names) if names[:index].count(name) < max_values]


def _view_row(array: np.ndarray, row: int) -> np.ndarray:
    """Return a flat view of a row, or of a scalar."""
    return (array[row : row + 1] if array.ndim else array).reshape(-1)


def _is_in_dtype(dtype: np.dtype[Any], value: Value) -> bool:
    if isinstance(value, str) or dtype.kind not in "iu":
        return True  # ids in a float dtype
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def inject_values(inputs: Arrays, injections: Iterable[InjectedValue]) -> Arrays:
    """Return inputs with each special value in its row; integers are first, so that no length masks them."""
    arrays = {name: array.copy() for name, array in inputs.items()}
    for injection in injections:
        row = _view_row(arrays[injection.input], injection.row)
        if injection.value == TIES:
            row[1::2] = row[: len(row) // 2 * 2 : 2]
            row[len(row) // 2 :: 3] = 0.0
            row[len(row) // 2 + 1 :: 3] = -0.0
        elif isinstance(injection.value, int):
            row[0] = injection.value
        else:
            is_negative = injection.value.startswith("-")
            row[0 if is_negative else len(row) // 2] = -0.0 if is_negative else 0.0
    return arrays


def find_finite_values(injections: Sequence[InjectedValue], inputs: Arrays, run: Run) -> list[InjectedValue]:
    """Return the values for which Keras returns finite outputs without more work than for ordinary values."""
    integers = [injection for injection in injections if isinstance(injection.value, int) and not injection.is_small]
    small_injections = [injection for injection in injections if injection not in integers]
    results = find_runnable_values(small_injections, inputs, run, _are_finite)
    if not integers or keras.backend.backend() != "tensorflow":  # operations are counted on TensorFlow only
        return results
    from .._private_api.tensorflow_internals import count_work

    usual_work = count_work(lambda: run_or_none(run, inputs))
    for name in dict.fromkeys(injection.input for injection in integers):
        group = [injection for injection in integers if injection.input == name]
        probe = inject_values(inputs, [replace(group[0], value=MIN_LARGE_INTEGER)])
        outputs: list[Arrays | None] = []
        work = count_work(lambda probe=probe, outputs=outputs: outputs.append(run_or_none(run, probe)))  # type: ignore[misc]
        # A model that raises, as for an index out of range, has done less work, so its work cannot be compared.
        if work == usual_work or outputs == [None]:
            larger = [injection for injection in group if injection.value != MIN_LARGE_INTEGER]
            results += find_runnable_values(larger, inputs, run, _are_finite)
    return results


def find_runnable_values(
    injections: Sequence[InjectedValue], inputs: Arrays, run: Run, is_valid: Callable[[Arrays], bool] = lambda _: True
) -> list[InjectedValue]:
    """Return the values for which `run` does not raise and `is_valid` accepts the outputs."""
    outputs = run_or_none(run, inject_values(inputs, injections))
    if outputs is not None and is_valid(outputs):
        return list(injections)
    if len(injections) < 2:
        return []
    return [valid for injection in injections for valid in find_runnable_values([injection], inputs, run, is_valid)]


def run_or_none(run: Callable[[Any], Arrays], inputs: Any) -> Arrays | None:
    """Run a model, or return `None` if it raises."""
    try:
        return run(inputs)
    except Exception:  # noqa: BLE001 - a model may raise anything for special values
        return None


def _are_finite(outputs: Arrays) -> bool:
    return all(array.dtype.kind != "f" or bool(np.isfinite(array).all()) for array in outputs.values())
