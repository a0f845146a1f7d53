"""Coverage section of the parity report: axes, inputs and outputs that the cases exercise."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._format.compare import scale_of
from .._format.names import Case
from .golden_cases import Cases


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
            name: {"varies": _varies(name, golden), **_left(name, golden.cases, converted)}
            for name in golden.cases[0].outputs
        },
    }


def _varies(output: str, golden: Cases) -> bool:
    """Tell whether an output varies, or, where all examples are one, as a sample of one row is, would with another."""
    if varies(output, golden.cases):
        return True
    moved = any(output in (known["moves"] or ()) for known in golden.inputs.values())
    arrays = [array for case in golden.cases for array in case.inputs.values()]
    return moved and all(np.array_equal(array, np.broadcast_to(array[:1], array.shape)) for array in arrays)


def _left(output: str, cases: Sequence[Case], converted: Sequence[Case]) -> dict[str, float | None]:
    if cases[0].outputs[output].dtype.kind != "f":
        return {"ties": left_to_rounding(output, converted or cases)}
    found = {"rounding": left_to_rounding(output, cases)}
    return found | ({"rounding_in_precision": left_to_rounding(output, converted)} if converted else {})


def left_to_rounding(output: str, cases: Sequence[Case]) -> float | None:
    """Return how much of an output is left to rounding, the median over the cases; `None` if that is not known.

    Of floats it is the usual share of the limits in what stands beside the numbers, in the worst channel; of integers
    and booleans the share of those that rounding decides.
    """
    shares = [_share_left(case.outputs[output], case.rounding[output]) for case in cases if output in case.rounding]
    known = [share for share in shares if share is not None]
    return float(np.median(known)) if known else None


def _share_left(array: np.ndarray, limits: np.ndarray) -> float | None:
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


def varies(output: str, cases: Sequence[Case]) -> bool:
    """Tell whether an output is anywhere another number in another row or case, beyond its limit of rounding."""
    least: dict[tuple[int, ...], Any] = {}
    greatest: dict[tuple[int, ...], Any] = {}
    rows: dict[tuple[int, ...], int] = {}
    for case in cases:
        values, limits = _rows(case.outputs[output]), _rows(_limits(case, output))
        shape = values.shape[1:]
        if values.size == 0:
            continue
        low, high = (values + limits).min(0), (values - limits).max(0)
        least[shape] = np.minimum(least.get(shape, low), low)
        greatest[shape] = np.maximum(greatest.get(shape, high), high)
        rows[shape] = rows.get(shape, 0) + len(values)
    if all(count == 1 for count in rows.values()):
        # no two that could be compared: one row in each case, and each longer
        return any(np.ptp(_rows(case.outputs[output])) > 0 for case in cases if case.outputs[output].size)
    return any(bool((greatest[shape] > least[shape]).any()) for shape in rows)


def _rows(array: np.ndarray) -> np.ndarray:
    """Return numbers by row, an infinity as the largest number and NaN as none of them; of strings, one of each."""
    if array.dtype == object:
        array = np.array([zlib.crc32(each.encode()) for each in array.flat]).reshape(array.shape)
    wide = np.nan_to_num(array.astype(np.float64), nan=-1e300, posinf=1e301, neginf=-1e301)
    return wide if wide.ndim else wide[np.newaxis]


def _limits(case: Case, output: str) -> np.ndarray:
    array, rounding = case.outputs[output], case.rounding.get(output)
    return np.zeros(array.shape) if rounding is None or rounding.dtype == bool else np.asarray(rounding)
