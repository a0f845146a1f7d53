"""Measure the error of an int8 file against the float32 file on user data."""

from collections.abc import Sequence

import numpy as np

from .._format.compare import without_fills
from .._format.names import Arrays, Case
from .conversion_gains import top1

Apart = dict[str, dict[str, float]]


def apart(float32: Sequence[Arrays], int8: Sequence[Arrays]) -> Apart:
    """Return the error of each int8 output over all batches.

    Returns:
        `largest` and `mean` difference; `scale`, the largest float32 number except fill values; `share`, largest /
        scale; and `noise`, root(sum of squared differences / sum of squared numbers). For integers and booleans, all
        but `scale` are the share of elements that differ, as is `differ`. For class scores, `same_choices` is the share
        of rows with the same largest class.
    """
    errors = {name: _error([batch[name] for batch in float32], [batch[name] for batch in int8]) for name in float32[0]}
    for name, choices in top1([Case("", {}, outputs) for outputs in float32], int8).items():
        errors[name]["same_choices"] = choices["agreement"]
    return errors


def _error(float32: Sequence[np.ndarray], int8: Sequence[np.ndarray]) -> dict[str, float]:
    if any(one.shape != other.shape for one, other in zip(float32, int8, strict=True)):
        return dict.fromkeys(("largest", "mean", "scale", "share", "noise"), 1.0)  # a size depends on computed values
    expected, actual = (np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (float32, int8))
    if expected.dtype.kind != "f":
        differ = float(np.mean(expected != actual)) if expected.size else 0.0
        return {"scale": 1.0, **dict.fromkeys(("largest", "mean", "share", "noise", "differ"), differ)}
    is_finite = np.isfinite(expected)
    finite = expected[is_finite].astype(np.float64)
    difference = np.abs(finite - actual[is_finite])
    sizes = without_fills(np.abs(finite))
    largest, scale = float(difference.max(initial=0.0)), float(sizes.max(initial=0.0))
    squares = float(np.square(difference).sum()), float(np.square(sizes).sum())
    return {
        "largest": largest,
        "mean": float(difference.mean()) if difference.size else 0.0,
        "scale": scale,
        "share": _share(largest, scale),
        "noise": _share(*squares) ** 0.5,
    }


def _share(part: float, whole: float) -> float:
    if not part < np.inf:  # NaN too, from sums that overflow float32
        return 1.0
    return min(part / whole, 1.0) if whole > 0 else float(part > 0)
