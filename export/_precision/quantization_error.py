"""Measure the error of an int8 file against the float32 file on user data."""

from collections.abc import Sequence

import numpy as np

from .._format.compare import without_fills
from .._format.names import Arrays, Case
from .conversion_gains import measure_top1_agreement

ErrorsByOutput = dict[str, dict[str, float]]


def measure_quantization_error(float32: Sequence[Arrays], int8: Sequence[Arrays]) -> ErrorsByOutput:
    """Return the error of each int8 output over all batches.

    Returns:
        `largest` and `mean` difference; `scale`, the largest float32 number except fill values; `share`, largest /
        scale; and `noise`, root(sum of squared differences / sum of squared numbers). For integers and booleans, all
        but `scale` are the share of elements that differ, as is `differ`. For class scores, `same_choices` is the share
        of rows with the same largest class.
    """
    errors = {
        name: _measure_output([batch[name] for batch in float32], [batch[name] for batch in int8])
        for name in float32[0]
    }
    for name, choices in measure_top1_agreement([Case("", {}, outputs) for outputs in float32], int8).items():
        errors[name]["same_choices"] = choices["agreement"]
    return errors


def _measure_output(float32: Sequence[np.ndarray], int8: Sequence[np.ndarray]) -> dict[str, float]:
    if any(
        expected_array.shape != actual_array.shape for expected_array, actual_array in zip(float32, int8, strict=True)
    ):
        return dict.fromkeys(("largest", "mean", "scale", "share", "noise"), 1.0)  # a size depends on computed values
    expected, actual = (np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (float32, int8))
    if expected.dtype.kind != "f":
        unequal_share = float(np.mean(expected != actual)) if expected.size else 0.0
        return {"scale": 1.0, **dict.fromkeys(("largest", "mean", "share", "noise", "differ"), unequal_share)}
    is_finite = np.isfinite(expected)
    finite = expected[is_finite].astype(np.float64)
    difference = np.abs(finite - actual[is_finite])
    magnitudes = without_fills(np.abs(finite))
    largest, scale = float(difference.max(initial=0.0)), float(magnitudes.max(initial=0.0))
    squares = float(np.square(difference).sum()), float(np.square(magnitudes).sum())
    return {
        "largest": largest,
        "mean": float(difference.mean()) if difference.size else 0.0,
        "scale": scale,
        "share": _divide_capped(largest, scale),
        "noise": _divide_capped(*squares) ** 0.5,
    }


def _divide_capped(numerator: float, denominator: float) -> float:
    if not numerator < np.inf:  # NaN too, from sums that overflow float32
        return 1.0
    return min(numerator / denominator, 1.0) if denominator > 0 else float(numerator > 0)
