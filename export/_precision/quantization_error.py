"""Quantization error: difference of an int8 file from the float32 file on the calibration data."""

from collections.abc import Sequence

import numpy as np

from .._format.compare import zero_fill_values
from .._format.names import Arrays, Case
from .conversion_gains import measure_top1_agreement

# For the float32 elements x_i of an output over all rows, and the int8 elements q_i:
#
#     largest = max |q_i - x_i|      scale = max |x_i|, without fill values of masks such as -1e9
#     share = largest / scale        noise = sqrt(sum (q_i - x_i)^2 / sum x_i^2), the relative RMS error
#
# The user's `limit` bounds `share`. `noise` sorts sensitive layers, because a maximum depends on a single element. Both
# are at most 1, and NaN counts as 1.
ErrorsByOutput = dict[str, dict[str, float]]


def measure_quantization_error(float32: Sequence[Arrays], int8: Sequence[Arrays]) -> ErrorsByOutput:
    """Return `largest`, `mean` (of |q - x|), `scale`, `share` and `noise` of each int8 output over all batches.

    For integers and booleans, `scale` is 1 and all errors are the share of unequal elements, as is `differ`. For class
    scores, `same_choices` is the share of rows with the same largest class.
    """
    names = float32[0]
    errors = {name: _measure_output([run[name] for run in float32], [run[name] for run in int8]) for name in names}
    for name, choices in measure_top1_agreement([Case("", {}, outputs) for outputs in float32], int8).items():
        errors[name]["same_choices"] = choices["agreement"]
    return errors


def _measure_output(float32: Sequence[np.ndarray], int8: Sequence[np.ndarray]) -> dict[str, float]:
    # Shapes differ if a size depends on computed values, as after `tf.where`.
    if [array.shape for array in float32] != [array.shape for array in int8]:
        return dict.fromkeys(("largest", "mean", "scale", "share", "noise"), 1.0)
    expected, actual = (np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (float32, int8))
    if expected.dtype.kind != "f":
        unequal_share = float(np.mean(expected != actual)) if expected.size else 0.0
        return {"scale": 1.0, **dict.fromkeys(("largest", "mean", "share", "noise", "differ"), unequal_share)}
    is_finite = np.isfinite(expected)
    finite = expected[is_finite].astype(np.float64)
    difference = np.abs(finite - actual[is_finite])
    magnitudes = zero_fill_values(np.abs(finite))
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
    if not numerator < np.inf:  # infinity, or NaN from sums that overflow float32
        return 1.0
    return min(numerator / denominator, 1.0) if denominator > 0 else float(numerator > 0)
