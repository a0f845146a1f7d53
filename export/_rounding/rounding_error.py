"""Rounding error limits of golden outputs, measured by perturbed runs.

Each further digit of a float32 is lost somewhere on the way, and how much of it arrives at an output only the model
knows: a difference of large numbers loses nearly all digits, a saturated sigmoid hides everything. To move what goes in
by one unit in the last place draws all roundings on the way anew, those of sums and functions too, so that the answers
differ by what no exporter and no machine can be held to. In float16 and int8 the unit is that of the precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from .._format.compare import scale_of, without_fills
from .._format.names import Arrays, Case
from .._golden_cases.case_generation import LARGE
from .._signature.signature import Signature
from .perturbed_runs import moved_runs
from .tie_errors import difference, note, widen

RUNS = 3  # how often everything is moved
TIES = 10  # how often, for outputs that are integers or booleans, which rounding must hit to be seen; see `_saturated`
TIE_UNITS = {"float32": 16, "float16": 4, "int8": 4}  # how far then
# of what was seen: a few draws do not find the largest; a coarse precision rounds by half a unit, and is moved by one
MULTIPLE = {"float32": 32, "float16": 16, "int8": 16}
FLOOR = 8  # units in the last place of what stands beside a number; functions are off by 1 to 2, most sums by 3
# units for each number that is summed. Where all are alike, as what a length of 1 lets see, each addition rounds the
# same way, wherever they are moved: a sum of n, one number after the other, is off by n / 8, two are n / 4 apart
UNITS_OF_SUMS = 1 / 4
LONGEST_SUM = 1024  # numbers: onnxruntime sums more of them in pieces
SUMMED_IN = float(np.finfo(np.float32).eps)  # in float16 and int8 too
PIECE = 2**20  # numbers that are moved at a time
ENOUGH = 8  # numbers of which a median tells something
UNDERFLOW = 1e-31  # what is smaller may be 0 on another machine, or have lost digits
COARSE = {
    "float32": 0.0,
    "float16": float(np.finfo(np.float16).eps),
    "int8": 1 / 254,
}  # units, unless a dtype's is more

ANOTHER = 1e-2  # of what stands beside a number
SWITCHED = 0.25  # of what stands beside a number: so far another key takes it


def with_rounding(signature: Signature, cases: Sequence[Case], precision: str) -> list[Case]:
    """Return golden cases with their rounding.

    Every limit is the difference between perturbed and unperturbed runs of one implementation, in one precision. The
    outputs of another implementation, or of the model in float64, widen no limit: a layer that computes otherwise there
    would excuse any file.

    Args:
        signature: The model, whose weights are moved while its outputs are taken; they are not changed.
        cases: Golden cases; what they say of rounding is not read.
        precision: That of the ONNX file that is to be compared with them.
    """
    if not cases:
        return []
    rng = np.random.default_rng(0)
    runs, base = moved_runs(signature, cases, RUNS + TIES * _chooses(cases[0]), rng)
    seen = [{name: blank(array) for name, array in case.outputs.items()} for case in cases]
    elsewhere = [{name: np.zeros_like(array) for name, array in each.items()} for each in seen]  # by other choices

    def moved(units: int, numbers: Iterable[int]) -> Iterator[tuple[int, Arrays]]:
        move = partial(_moved, units=units, precision=precision, rng=rng)
        with runs(units, move) as run:
            for number in numbers:
                yield number, run({name: _moved_input(array, move) for name, array in cases[number].inputs.items()})

    every, far = range(len(cases)), TIE_UNITS[precision]
    for _ in range(RUNS):
        for number, found in moved(1, every):
            expected = base[number]
            apart = choice_thresholds(expected)
            note(expected, found, seen[number], elsewhere[number], apart, rounds=True)
    if saturated := _saturated(cases, precision):
        for number, found in (each for _ in range(TIES) for each in moved(far, saturated)):
            _note_switched(base[number], found, elsewhere[number])
    eps = max([COARSE[precision], *(np.finfo(dtype).eps for dtype in _float_dtypes(signature.model, cases[0].inputs))])
    sizes = {name: _usual_sizes([case.outputs[name] for case in cases]) for name in cases[0].outputs}
    limits = [
        {
            name: _limits(expected, found[name], MULTIPLE[precision], sizes[name], _of_sums(case), eps)
            for name, expected in case.outputs.items()
        }
        for case, found in zip(cases, seen, strict=True)
    ]
    if _chooses(cases[0]):
        for number, found in (run for _ in range(TIES) for run in moved(far, every)):
            note(base[number], found, limits[number], elsewhere[number], limits[number], rounds=False)
    for found, differences in zip(limits, elsewhere, strict=True):
        widen(found, differences)
    return [case._replace(rounding=found) for case, found in zip(cases, limits, strict=True)]


def with_limits(cases: Sequence[Case], runs: Iterable[Sequence[Arrays]], multiple: int) -> list[Case]:
    """Return cases with the rounding that other runs of a float32 graph on them show.

    Args:
        cases: Inputs, and what the graph gives.
        runs: What it gives with all roundings drawn anew, case by case, several times.
        multiple: Of what was seen, for which few runs do not find the largest.
    """
    seen, elsewhere = (
        [{name: blank(array) for name, array in case.outputs.items()} for case in cases] for _ in range(2)
    )
    for run in runs:
        for case, found, near, far in zip(cases, run, seen, elsewhere, strict=True):
            note(case.outputs, found, near, far, choice_thresholds(case.outputs), rounds=True)
    sizes = {name: _usual_sizes([case.outputs[name] for case in cases]) for name in cases[0].outputs}
    rounded = []
    for case, near, far in zip(cases, seen, elsewhere, strict=True):
        sums = _of_sums(case)
        limits = {
            name: _limits(array, near[name], multiple, sizes[name], sums, SUMMED_IN)
            for name, array in case.outputs.items()
        }
        widen(limits, far)
        rounded.append(case._replace(rounding=limits))
    return rounded


def choice_thresholds(outputs: Arrays) -> Arrays:
    """Return how far off floats are at least where another choice was made."""
    floats = {name: array.astype(np.float64) for name, array in outputs.items() if array.dtype.kind == "f"}
    return {name: ANOTHER * scale_of(array) for name, array in floats.items()}


def _saturated(cases: Sequence[Case], precision: str) -> list[int]:
    """Return the numbers of the cases whose scores are so large that a coarse precision decides which key is seen."""
    return [number for number, case in enumerate(cases) if case.name == LARGE] if COARSE[precision] else []


def _note_switched(expected: Arrays, moved: Arrays, elsewhere: Mapping[str, np.ndarray]) -> None:
    """Note, in place, how far off floats are that another key was seen for: no rounding moves them so far."""
    for name, array in expected.items():
        if array.dtype.kind == "f" and moved[name].shape == array.shape:
            found = difference(array, moved[name])
            is_switched = found > SWITCHED * scale_of(array.astype(np.float64))
            np.maximum(elsewhere[name], found, out=elsewhere[name], where=is_switched)


def _of_sums(case: Case) -> float:
    """Return how many units two right sums over the positions of a case may be apart.

    A position is an index of an axis of whole numbers or masks, and of floats if it is not the last, whose numbers have
    weights of their own each. The first are examples, and those of images are drawn each otherwise.
    """
    arrays = [array for array in (*case.inputs.values(), *case.outputs.values()) if array.ndim < 4]
    shapes = [array.shape[1:-1] if array.dtype.kind == "f" else array.shape[1:] for array in arrays]
    return UNITS_OF_SUMS * min(max((size for shape in shapes for size in shape), default=0), LONGEST_SUM)


def _chooses(case: Case) -> bool:
    return any(array.dtype.kind != "f" for array in case.outputs.values())


def _moved_input(array: np.ndarray, move: Callable[..., np.ndarray]) -> np.ndarray:
    """Return an input moved, but for strings and whole numbers alone: those are ids or a mask, and exact."""
    is_exact = array.dtype.kind != "f" or np.array_equal(array, np.rint(array))
    return array if is_exact else move(array, axis=-1)


def _moved(array: np.ndarray, axis: int, *, units: int, precision: str, rng: np.random.Generator) -> np.ndarray:
    """Return floats moved up or down at random by so many units of a precision.

    The unit of a matrix in int8 is that of its largest number along `axis`; what has one axis, or those of an image
    and more, stays float32 there.
    """
    if array.dtype.kind != "f" or array.size == 0:
        return array
    kind, moved = array.dtype.type, array.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        if precision == "int8" and array.ndim in (2, 3):
            largest = np.maximum(array.max(axis, keepdims=True), -array.min(axis, keepdims=True))
            steps = np.broadcast_to((units * COARSE["int8"] * largest).astype(kind), array.shape)
            rows = max(1, PIECE * len(array) // array.size)
            for start in range(0, len(array), rows):
                part = moved[start : start + rows]
                part += steps[start : start + rows] * (rng.integers(0, 2, part.shape, np.int8) * kind(2) - kind(1))
            return moved
        eps = max(float(np.finfo(array.dtype).eps), COARSE["float16"] if precision == "float16" else 0.0)
        factors = np.array([1 - units * eps, 1 + units * eps], kind)
        flat = moved.reshape(-1)
        for start in range(0, flat.size, PIECE):  # or gigabytes of weights would need gigabytes of factors
            part = flat[start : start + PIECE]
            part *= factors[rng.integers(0, 2, part.size, np.int8)]
    return moved


def _float_dtypes(model: keras.Model, inputs: Arrays) -> list[np.dtype[Any]]:
    names = {str(variable.dtype) for variable in model.weights} | {array.dtype.name for array in inputs.values()}
    return [np.dtype(name) for name in names if name in ("float16", "float32", "float64")]


def blank(array: np.ndarray) -> np.ndarray:
    """Return the differences from an output before any run: 0 for floats, `False` for other dtypes."""
    return np.zeros(array.shape, np.float64 if array.dtype.kind == "f" else bool)


def _usual_sizes(outputs: Sequence[np.ndarray]) -> np.ndarray | float:
    """Return how large an output usually is, by channel where all cases have the same: the median of medians."""
    medians = [
        np.median(_sizes(array).reshape(-1, array.shape[-1] if array.ndim > 1 else 1), 0)
        for array in outputs
        if array.dtype.kind == "f" and array.size
    ]
    if not medians:
        return 0.0
    same = len({each.shape for each in medians}) == 1
    return np.median(medians, 0) if same else float(np.median([each.min() for each in medians]))


def _sizes(array: np.ndarray) -> np.ndarray:
    return without_fills(np.abs(np.nan_to_num(array.astype(np.float64), posinf=0, neginf=0)))


def _usual_share(seen: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return how much of what stands beside a number usually was seen in its channel, or in all where that is short.

    By luck a number may stay where it was in each of the draws.
    """
    columns = seen.shape[-1] if seen.ndim > 1 else 1
    moved = (scale > 0) & (seen > 0)  # most of what a ReLU or a mask gives are zeros, which stay
    shares = np.divide(seen, scale, out=np.full(seen.shape, np.nan), where=moved).reshape(-1, columns)
    pooled = shares if len(shares) >= ENOUGH else shares.reshape(-1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a channel in which nothing moved
        usual = np.nan_to_num(np.nanmedian(pooled, 0, keepdims=True))
    return np.broadcast_to(usual, shares.shape).reshape(seen.shape)


def _limits(
    expected: np.ndarray,
    seen: np.ndarray,
    multiple: int,
    usual: np.ndarray | float,
    sums: float,
    eps: float,
) -> np.ndarray:
    """Return what rounding may do to each number: what it was seen to do to it, or to most of its channel.

    It is at least some units in the last place of what stands beside it, or usually stands in its channel: sigmoids end
    at 1e-8 in onnxruntime, and are as far off where they should be near 0. Sums on the way may be so many units apart;
    what the model makes of one unit was seen.
    """
    if expected.dtype.kind != "f" or expected.size == 0:
        return seen
    wide = expected.astype(np.float64)
    eps = max(eps, float(np.finfo(expected.dtype).eps))
    scale = scale_of(wide)
    sums *= min(1.0, SUMMED_IN / eps)
    least = max(FLOOR, sums)
    floor = least * eps * np.maximum(scale, usual)
    limits: np.ndarray = np.maximum(np.maximum(floor, UNDERFLOW), max(multiple, sums) * likely(seen, scale))
    return limits.reshape(expected.shape)


def likely(seen: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return what was seen at each number, or, of what stands beside it, in most of its channel."""
    likely: np.ndarray = np.maximum(seen, scale * _usual_share(seen, scale))
    return likely
