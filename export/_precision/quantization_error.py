"""Measure the error of an int8 file against the float32 file on user data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._format.compare import without_fills
from .._format.names import Arrays, Case
from .conversion_gains import top1

Apart = dict[str, dict[str, float]]


def apart(float32: Sequence[Arrays], int8: Sequence[Arrays]) -> Apart:
    """Return how far what int8 gives is from what float32 gives, batch by batch.

    Returns:
        By output: `largest` and `mean`, the largest and the mean difference; `scale`, the largest number of float32, in
        which what fills a place, as -1e9 for what is masked, has no say; `share`, the largest difference as a share
        of that; and `noise`, the mean square of the differences as a share of that of the numbers, its root. Of whole
        numbers all of these are the share that differs, and so is `differ`. For class scores also `same_choices`, the
        share of rows in which one class is the largest in both.
    """
    found = {name: _apart([each[name] for each in float32], [each[name] for each in int8]) for name in float32[0]}
    for name, choices in top1([Case("", {}, outputs) for outputs in float32], int8).items():
        found[name]["same_choices"] = choices["agreement"]
    return found


def _apart(float32: Sequence[np.ndarray], int8: Sequence[np.ndarray]) -> dict[str, float]:
    if any(have.shape != want.shape for want, have in zip(float32, int8, strict=True)):
        return dict.fromkeys(("largest", "mean", "scale", "share", "noise"), 1.0)  # sizes hang on what was chosen
    wanted, given = (np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (float32, int8))
    if wanted.dtype.kind != "f":
        differs = float(np.mean(wanted != given)) if wanted.size else 0.0
        return {"scale": 1.0, **dict.fromkeys(("largest", "mean", "share", "noise", "differ"), differs)}
    is_number = np.isfinite(wanted)
    difference = np.abs(wanted[is_number].astype(np.float64) - given[is_number])
    sizes = without_fills(np.abs(wanted[is_number].astype(np.float64)))
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
    if not part < np.inf:  # NaN too, which int8 cannot hold and sums beyond float32 give
        return 1.0
    return min(part / whole, 1.0) if whole > 0 else float(part > 0)
