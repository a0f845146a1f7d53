"""Coverage section of the parity report: axes, inputs and outputs that the cases exercise."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._array_comparison import alike
from .._format.compare import scale_of
from .._format.names import Arrays, Case
from .._format.parity_report import differences
from .dynamic_axes import BATCH
from .golden_cases import Cases
from .input_generators import LENGTH_PATTERNS, InputGenerator
from .special_values import run_or_none

MAX_REDRAWS = 4  # changes of an input, after which no output is said to depend on the input
FULL_LENGTHS = "lengths full"  # the case in which lengths are full
MAX_NAN_TEXTS = 3  # in the report


def coverage_of(golden: Cases, converted: Sequence[Case] = ()) -> dict[str, Any]:
    """Return what was compared, as the parity report says it.

    Args:
        golden: The golden cases.
        converted: The same with what rounding does in the precision of the file, if that is another.

    Returns:
        `cases` and `refused`: how many; `axes`: the sizes of each; `inputs`: which outputs each `moves` (`None` where
        it could not be changed), and how many of the `ids` that can be looked up were `ids_seen`; `outputs`: whether
        each `varies` between cases or rows by more than rounding may, and the share that is left to `rounding`, in
        float32 and in the precision of the file, or for integers and booleans the share of `ties`: see
        `left_to_rounding`.
    """
    axes = {symbol: sorted({sizes[symbol] for sizes in golden.sizes}) for symbol in golden.sizes[0]}
    return {
        "cases": len(golden.cases),
        "refused": len(golden.refused),
        "axes": axes,
        "inputs": golden.inputs,
        "outputs": {
            name: {
                "varies": _is_varied_by_cases_or_inputs(name, golden),
                **_summarize_rounding(name, golden.cases, converted),
            }
            for name in golden.cases[0].outputs
        },
    }


def measure_input_coverage(
    golden: Cases,
    generators: Mapping[str, InputGenerator],
    draw: Callable[[Mapping[str, int], str], Arrays],
    run: Callable[[Arrays], Arrays],
) -> dict[str, dict[str, Any]]:
    """Return the coverage of each input: outputs that it `moves`, its `ids` with `ids_seen`, and its `values`.

    `draw` returns inputs for sizes by name and a pattern of lengths.
    """
    usual = [case for case in golden.cases if case.name not in golden.trials]
    number = _choose_changed_case(usual, generators)
    case = usual[number]
    noise = differences(case.outputs, run(case.inputs))
    small = [trial for trials in golden.trials.values() for trial in trials if trial.is_small]
    covered: dict[str, dict[str, Any]] = {}
    for name, generator in generators.items():
        tried = [int(trial.value) for trial in small if trial.input == name]
        alternatives = _yield_alternatives(
            generator, name, case, lambda lengths: draw(golden.sizes[number], lengths), tried
        )
        arrays = [other.inputs[name] for other in usual]
        covered[name] = {"moves": _find_changed_outputs(name, case, alternatives, run, noise)}
        if generator.id_range is not None:
            values = np.unique(np.concatenate([array.ravel() for array in arrays]))
            covered[name] |= {"ids": generator.id_range.high - generator.id_range.low + 1, "ids_seen": len(values)}
        covered[name]["values"] = {"drawn": _describe_values(generator, arrays, tried)}
        if texts := golden.nan_texts.get(name):
            covered[name]["values"]["nan"] = sorted({*texts})[:MAX_NAN_TEXTS]
    return covered


def find_counted_axes(golden: Cases, generators: Mapping[str, InputGenerator]) -> dict[str, str]:
    """Return for inputs that are lengths the axis that they count: full lengths are as large as its size."""
    cases = zip(golden.cases, golden.sizes, strict=True)
    case, sizes = next(((case, sizes) for case, sizes in cases if case.name == FULL_LENGTHS), (None, {}))
    if case is None:
        return {}
    rules = {name: generator.lengths for name, generator in generators.items()}
    counting = [name for name, rule in rules.items() if rule is not None and not rule.is_of_state]
    axes = ((name, axis) for name in counting for axis, size in sizes.items() if size == case.inputs[name].max())
    return {name: axis for name, axis in axes if axis != BATCH}  # the sizes differ from each other


def _choose_changed_case(cases: Sequence[Case], generators: Mapping[str, InputGenerator]) -> int:
    """Return the number of the case whose inputs are changed, one after the other."""
    drawn = [number for number, case in enumerate(cases) if case.name != "samples"]  # samples may be large
    states = [name for name, generator in generators.items() if generator.lengths and generator.lengths.is_of_state]
    # keys of an empty state change no output
    filled = [number for number in drawn if all(cases[number].inputs[name].any() for name in states)]
    return (filled or drawn or [0])[0]


def _find_changed_outputs(
    name: str,
    case: Case,
    alternatives: Iterator[np.ndarray],
    run: Callable[[Arrays], Arrays],
    noise: Mapping[str, float],
) -> list[str] | None:
    """Return the outputs that change when one input does; `None` if the input cannot be changed."""
    moved: set[str] = set()
    is_changed = False
    for array in alternatives:
        outputs = None if alike(array, case.inputs[name]) else run_or_none(run, case.inputs | {name: array})
        if outputs is None:
            continue
        is_changed = True
        changes = differences(case.outputs, outputs)
        moved |= {output for output, size in changes.items() if size > 2 * noise[output]}
        if len(moved) == len(case.outputs):
            break
    return [output for output in case.outputs if output in moved] if is_changed else None


def _yield_alternatives(
    generator: InputGenerator, name: str, case: Case, draw: Callable[[str], Arrays], tried: Sequence[int]
) -> Iterator[np.ndarray]:
    """Yield other arrays for an input."""
    array = case.inputs[name]
    if generator.lengths is not None:
        yield from (draw(pattern)[name] for pattern in LENGTH_PATTERNS)
    elif not generator.is_sampled:
        yield from (draw("mixed")[name] for _ in range(MAX_REDRAWS))
    else:
        yield np.roll(array, 1, axis=0) if array.ndim else array
        yield np.roll(array, 1)  # through all axes: numbers that the user has passed, in other places
        if array.dtype.kind == "f":
            factors = np.linspace(0.5, 1.5, max(array.size, 2))[: array.size].reshape(array.shape)
            yield (array * factors).astype(array.dtype)
        yield from (np.full_like(array, value) for value in tried)


def _describe_values(generator: InputGenerator, arrays: Sequence[np.ndarray], tried: Sequence[int]) -> str:
    """Return in words what golden cases hold of an input; of integers the range, with special values."""
    dtype = arrays[0].dtype
    if dtype.kind == "b":
        return "booleans"
    if generator.texts is not None:
        texts = {text for array in arrays for text in array.flat}
        return f"{len(texts)} different strings, {sum(not t.isascii() for t in texts)} with characters outside ASCII"
    if generator.is_mask:
        return "zeros and ones"
    if generator.is_normal:
        return "normal floats"
    numbers = np.append(np.concatenate([array[np.isfinite(array)].ravel() for array in arrays]), tried)
    if not numbers.size:
        return "nothing"
    if dtype.kind == "f" and generator.id_range is None:
        return f"floats {numbers.min():g} to {numbers.max():g}"
    return f"integers {int(numbers.min())} to {int(numbers.max())}"


def _is_varied_by_cases_or_inputs(output: str, golden: Cases) -> bool:
    """Tell whether an output varies, or, where all examples are one, as a sample of one row is, would with another."""
    if is_varied_by_cases(output, golden.cases):
        return True
    moved = any(output in (known["moves"] or ()) for known in golden.inputs.values())
    arrays = [array for case in golden.cases for array in case.inputs.values()]
    return moved and all(np.array_equal(array, np.broadcast_to(array[:1], array.shape)) for array in arrays)


def _summarize_rounding(output: str, cases: Sequence[Case], converted: Sequence[Case]) -> dict[str, float | None]:
    if cases[0].outputs[output].dtype.kind != "f":
        return {"ties": left_to_rounding(output, converted or cases)}
    share = {"rounding": left_to_rounding(output, cases)}
    return share | ({"rounding_in_precision": left_to_rounding(output, converted)} if converted else {})


def left_to_rounding(output: str, cases: Sequence[Case]) -> float | None:
    """Return how much of an output is left to rounding, the median over the cases; `None` if that is not known.

    Of floats it is the usual share of the limits in what stands beside the numbers, in the worst channel; of integers
    and booleans the share of those that rounding decides.
    """
    shares = [
        _compute_case_share(case.outputs[output], case.rounding[output]) for case in cases if output in case.rounding
    ]
    known = [share for share in shares if share is not None]
    return float(np.median(known)) if known else None


def _compute_case_share(array: np.ndarray, limits: np.ndarray) -> float | None:
    if not array.size:
        return None
    if array.dtype.kind != "f":
        return float(np.mean(limits))
    scale = scale_of(array.astype(np.float64))
    channels = (-1, array.shape[-1] if array.ndim > 1 else 1)
    medians = [
        np.median(limit[size > 0] / size[size > 0])
        for limit, size in zip(limits.reshape(channels).T, scale.reshape(channels).T, strict=True)
        if np.any(size > 0)
    ]
    return float(max(medians)) if medians else None


def is_varied_by_cases(output: str, cases: Sequence[Case]) -> bool:
    """Tell whether an output is anywhere another number in another row or case, beyond its limit of rounding."""
    least: dict[tuple[int, ...], Any] = {}
    greatest: dict[tuple[int, ...], Any] = {}
    rows: dict[tuple[int, ...], int] = {}
    for case in cases:
        values, limits = _convert_to_rows(case.outputs[output]), _convert_to_rows(_get_limits(case, output))
        shape = values.shape[1:]
        if values.size == 0:
            continue
        low, high = (values + limits).min(0), (values - limits).max(0)
        least[shape] = np.minimum(least.get(shape, low), low)
        greatest[shape] = np.maximum(greatest.get(shape, high), high)
        rows[shape] = rows.get(shape, 0) + len(values)
    if all(count == 1 for count in rows.values()):
        # no two that could be compared: one row in each case, and each longer
        return any(np.ptp(_convert_to_rows(case.outputs[output])) > 0 for case in cases if case.outputs[output].size)
    return any(bool((greatest[shape] > least[shape]).any()) for shape in rows)


def _convert_to_rows(array: np.ndarray) -> np.ndarray:
    """Return numbers by row, an infinity as the largest number and NaN as none of them; of strings, one of each."""
    if array.dtype == object:
        array = np.array([zlib.crc32(text.encode()) for text in array.flat]).reshape(array.shape)
    wide = np.nan_to_num(array.astype(np.float64), nan=-1e300, posinf=1e301, neginf=-1e301)
    return wide if wide.ndim else wide[np.newaxis]


def _get_limits(case: Case, output: str) -> np.ndarray:
    array, rounding = case.outputs[output], case.rounding.get(output)
    return np.zeros(array.shape) if rounding is None or rounding.dtype == bool else np.asarray(rounding)
