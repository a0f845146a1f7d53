"""Coverage section of the parity report: axes, inputs and outputs that the golden cases exercise.

- An output depends on an input if its difference to the golden output, for other values of that input in one case,
  exceeds twice the difference between two runs on equal inputs. At most MAX_REDRAWS values are drawn.
- An output varies if, over the rows r of all cases with values y_r and limits l_r, some element has
  max(y_r - l_r) > min(y_r + l_r): two rows differ by more than the limits of both.
- The relative rounding of a float output is the median over the cases of the largest channel median of limit / scale;
  in an integer or boolean output the median over the cases of the share of ties.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._array_comparison import arrays_match
from .._format.compare import scale_of
from .._format.names import Arrays, Case
from .._format.parity_report import measure_differences
from .dynamic_axes import BATCH
from .golden_cases import GoldenCases
from .input_generators import LENGTH_PATTERNS, InputGenerator
from .special_values import run_or_none

MAX_REDRAWS = 4  # more find rarer effects, and take a run each
FULL_LENGTHS = "lengths full"  # name of the golden case with full lengths
MAX_NAN_TEXTS = 3  # texts of one input in the report


def summarize_coverage(golden: GoldenCases, converted: Sequence[Case] = ()) -> dict[str, Any]:
    """Return the coverage section of the parity report; `converted` has the limits in float16 or int8, if any.

    Returns:
        Counts of `cases` and `refused` cases; sizes of `axes`; the entries of `measure_input_coverage` as `inputs`; and
        for each of `outputs` if it `varies`, and its relative `rounding` or its share of `ties`.
    """
    axes = {symbol: sorted({sizes[symbol] for sizes in golden.sizes}) for symbol in golden.sizes[0]}
    return {
        "cases": len(golden.cases),
        "refused": len(golden.refusals),
        "axes": axes,
        "inputs": golden.inputs,
        "outputs": {
            name: {"varies": _is_varied(name, golden), **_summarize_rounding(name, golden.cases, converted)}
            for name in golden.cases[0].outputs
        },
    }


def measure_input_coverage(
    golden: GoldenCases,
    generators: Mapping[str, InputGenerator],
    draw: Callable[[Mapping[str, int], str], Arrays],
    run: Callable[[Arrays], Arrays],
) -> dict[str, dict[str, Any]]:
    """Return the coverage of each input: dependent outputs (`moves`), valid and used `ids`, and its `values`."""
    usual_cases = [case for case in golden.cases if case.name not in golden.injections_by_case]
    index = _choose_changed_case(usual_cases, generators)
    case = usual_cases[index]
    draw_inputs = partial(draw, golden.sizes[index])
    noise = measure_differences(case.outputs, run(case.inputs))
    small_injections = [
        injection for group in golden.injections_by_case.values() for injection in group if injection.is_small
    ]
    coverage: dict[str, dict[str, Any]] = {}
    for name, generator in generators.items():
        special_integers = [int(injection.value) for injection in small_injections if injection.input == name]
        alternatives = _yield_alternatives(generator, name, case, draw_inputs, special_integers)
        arrays = [usual.inputs[name] for usual in usual_cases]
        coverage[name] = {"moves": _find_changed_outputs(name, case, alternatives, run, noise)}
        if generator.id_range is not None:
            values = np.unique(np.concatenate([array.ravel() for array in arrays]))
            coverage[name] |= {"ids": generator.id_range.high - generator.id_range.low + 1, "ids_seen": len(values)}
        coverage[name]["values"] = {"drawn": _describe_values(generator, arrays, special_integers)}
        if texts := golden.nan_texts.get(name):
            coverage[name]["values"]["nan"] = sorted({*texts})[:MAX_NAN_TEXTS]
    return coverage


def find_counted_axes(golden: GoldenCases, generators: Mapping[str, InputGenerator]) -> dict[str, str]:
    """Return the axis that each input of lengths counts: its size is the largest length in the case of full lengths."""
    cases = zip(golden.cases, golden.sizes, strict=True)
    case, sizes = next(((case, sizes) for case, sizes in cases if case.name == FULL_LENGTHS), (None, {}))
    if case is None:
        return {}
    rules = {name: generator.lengths for name, generator in generators.items()}
    names = [name for name, rule in rules.items() if rule is not None and not rule.is_of_state]
    axes = ((name, axis) for name in names for axis, size in sizes.items() if size == case.inputs[name].max())
    return {name: axis for name, axis in axes if axis != BATCH}  # unique, since the sizes are distinct


def _choose_changed_case(cases: Sequence[Case], generators: Mapping[str, InputGenerator]) -> int:
    """Return the index of the case whose inputs are changed one by one: the first drawn one, with caches if any."""
    drawn_indices = [index for index, case in enumerate(cases) if case.name != "samples"]  # samples may be large
    states = [name for name, generator in generators.items() if generator.lengths and generator.lengths.is_of_state]
    # Keys of an empty cache change no output.
    filled_indices = [index for index in drawn_indices if all(cases[index].inputs[name].any() for name in states)]
    return (filled_indices or drawn_indices or [0])[0]


def _find_changed_outputs(
    name: str,
    case: Case,
    alternatives: Iterator[np.ndarray],
    run: Callable[[Arrays], Arrays],
    noise: Mapping[str, float],
) -> list[str] | None:
    """Return the outputs that depend on one input; `None` if the model accepts no other values of the input."""
    changed_outputs: set[str] = set()
    is_changed = False
    for array in alternatives:
        outputs = None if arrays_match(array, case.inputs[name]) else run_or_none(run, case.inputs | {name: array})
        if outputs is None:
            continue
        is_changed = True
        changes = measure_differences(case.outputs, outputs)
        changed_outputs |= {output for output, change in changes.items() if change > 2 * noise[output]}
        if len(changed_outputs) == len(case.outputs):
            break
    return [output for output in case.outputs if output in changed_outputs] if is_changed else None


def _yield_alternatives(
    generator: InputGenerator, name: str, case: Case, draw: Callable[[str], Arrays], special_integers: Sequence[int]
) -> Iterator[np.ndarray]:
    """Yield arrays for an input that replace its array in a case."""
    array = case.inputs[name]
    if generator.lengths is not None:
        yield from (draw(pattern)[name] for pattern in LENGTH_PATTERNS)
    elif not generator.is_sampled:
        yield from (draw("mixed")[name] for _ in range(MAX_REDRAWS))
    else:
        yield np.roll(array, 1, axis=0) if array.ndim else array
        yield np.roll(array, 1)  # through all axes: the elements are those of the user, with other indices
        if array.dtype.kind == "f":
            factors = np.linspace(0.5, 1.5, max(array.size, 2))[: array.size].reshape(array.shape)
            yield (array * factors).astype(array.dtype)
        yield from (np.full_like(array, value) for value in special_integers)


def _describe_values(generator: InputGenerator, arrays: Sequence[np.ndarray], special_integers: Sequence[int]) -> str:
    """Describe the values of an input in the golden cases; the range of integers includes special values."""
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
    numbers = np.append(np.concatenate([array[np.isfinite(array)].ravel() for array in arrays]), special_integers)
    if not numbers.size:
        return "nothing"
    if dtype.kind == "f" and generator.id_range is None:
        return f"floats {numbers.min():g} to {numbers.max():g}"
    return f"integers {int(numbers.min())} to {int(numbers.max())}"


def _is_varied(output: str, golden: GoldenCases) -> bool:
    """Return True if an output varies, or, if all rows of every input are equal, depends on an input."""
    if varies_beyond_limits(output, golden.cases):
        return True
    is_dependent = any(output in (entry["moves"] or ()) for entry in golden.inputs.values())
    arrays = [array for case in golden.cases for array in case.inputs.values()]
    return is_dependent and all(np.array_equal(array, np.broadcast_to(array[:1], array.shape)) for array in arrays)


def _summarize_rounding(output: str, cases: Sequence[Case], converted: Sequence[Case]) -> dict[str, float | None]:
    if cases[0].outputs[output].dtype.kind != "f":
        return {"ties": compute_relative_rounding(output, converted or cases)}
    share = {"rounding": compute_relative_rounding(output, cases)}
    return share | ({"rounding_in_precision": compute_relative_rounding(output, converted)} if converted else {})


def compute_relative_rounding(output: str, cases: Sequence[Case]) -> float | None:
    """Return the relative rounding or the share of ties of an output, or `None` if no case has limits for it."""
    limited_cases = [case for case in cases if output in case.rounding_limits]
    shares = [_compute_case_share(case.outputs[output], case.rounding_limits[output]) for case in limited_cases]
    known_shares = [share for share in shares if share is not None]
    return float(np.median(known_shares)) if known_shares else None


def _compute_case_share(array: np.ndarray, limits: np.ndarray) -> float | None:
    if not array.size:
        return None
    if array.dtype.kind != "f":
        return float(np.mean(limits))
    scale = scale_of(array.astype(np.float64))
    channels = (-1, array.shape[-1] if array.ndim > 1 else 1)
    medians = [
        np.median(channel_limits[scales > 0] / scales[scales > 0])
        for channel_limits, scales in zip(limits.reshape(channels).T, scale.reshape(channels).T, strict=True)
        if np.any(scales > 0)
    ]
    return float(max(medians)) if medians else None


def varies_beyond_limits(output: str, cases: Sequence[Case]) -> bool:
    """Return True if two rows of an output differ by more than both limits, by the formula of this module."""
    lowest: dict[tuple[int, ...], Any] = {}
    highest: dict[tuple[int, ...], Any] = {}
    num_rows: dict[tuple[int, ...], int] = {}
    for case in cases:
        values, limits = _convert_to_rows(case.outputs[output]), _convert_to_rows(_get_limits(case, output))
        shape = values.shape[1:]
        if values.size == 0:
            continue
        low, high = (values + limits).min(0), (values - limits).max(0)
        lowest[shape] = np.minimum(lowest.get(shape, low), low)
        highest[shape] = np.maximum(highest.get(shape, high), high)
        num_rows[shape] = num_rows.get(shape, 0) + len(values)
    if all(count == 1 for count in num_rows.values()):
        # One row in each case, all of different shapes: the elements of a row are compared instead.
        return any(np.ptp(_convert_to_rows(case.outputs[output])) > 0 for case in cases if case.outputs[output].size)
    return any(bool((highest[shape] > lowest[shape]).any()) for shape in num_rows)


def _convert_to_rows(array: np.ndarray) -> np.ndarray:
    """Return rows as float64, with distinct finite values for infinities and NaN, and checksums of strings."""
    if array.dtype == object:
        array = np.array([zlib.crc32(text.encode()) for text in array.flat]).reshape(array.shape)
    rows = np.nan_to_num(array.astype(np.float64), nan=-1e300, posinf=1e301, neginf=-1e301)
    return rows if rows.ndim else rows[np.newaxis]


def _get_limits(case: Case, output: str) -> np.ndarray:
    array, limits = case.outputs[output], case.rounding_limits.get(output)
    return np.zeros(array.shape) if limits is None or limits.dtype == bool else np.asarray(limits)
