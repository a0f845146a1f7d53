"""Error limits of rows in which rounding flips an integer or boolean output.

Where rounding makes the choice, as between two equal scores, both ways are right. Integers and booleans tell that a
choice was made otherwise; the floats of their row are then as far off as the other way takes them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .._format.names import Arrays

SEVERAL = 4  # times what another choice was seen to do: after it a third way may be taken


def note(
    expected: Arrays,
    moved: Arrays,
    seen: Mapping[str, np.ndarray],
    elsewhere: Mapping[str, np.ndarray],
    apart: Mapping[str, np.ndarray],
    *,
    rounds: bool,
) -> None:
    """Note, in place, what another run of a case gives.

    Args:
        expected: The outputs.
        moved: Those of the other run.
        seen: By output where integers and booleans differ, and how far off floats were, for the same choices.
        elsewhere: How far off floats were where another choice was made.
        apart: How far off a float is at least, in a row with another choice, that hangs on it.
        rounds: Whether the floats of that run tell of rounding: else only what hangs on a choice is noted of them.
    """
    otherwise = _chosen_otherwise(expected, moved)
    for name, array in expected.items():
        if moved[name].shape != array.shape:
            continue  # as many rows as there are positive numbers, for example
        if array.dtype.kind != "f":
            np.logical_or(seen[name], moved[name] != array, out=seen[name])
            continue
        found = difference(array, moved[name])
        hangs = otherwise[name] & (found > apart[name])
        np.maximum(elsewhere[name], found, out=elsewhere[name], where=hangs)
        if rounds:
            np.maximum(seen[name], found, out=seen[name], where=~hangs)


def widen(limits: Mapping[str, np.ndarray], elsewhere: Mapping[str, np.ndarray]) -> None:
    """Let floats, in place, be as far off as another choice was seen to take them, several times."""
    for name, found in elsewhere.items():
        if found.dtype.kind == "f":
            np.maximum(limits[name], SEVERAL * found, out=limits[name])


def difference(expected: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Return how far apart two arrays of floats are; nothing where one is not finite."""
    with np.errstate(invalid="ignore"):
        found = np.abs(expected.astype(np.float64) - moved.astype(np.float64))
    return np.where(np.isfinite(found), found, 0.0)


def _chosen_otherwise(expected: Arrays, moved: Arrays) -> dict[str, np.ndarray]:
    """Return where each output of floats stands in a row in which another output, of integers or booleans, differs.

    Args:
        expected: The outputs.
        moved: Those of another run.

    Returns:
        By the name of each output of floats booleans that broadcast to it. An output without rows counts for all.
    """
    rows: dict[int, np.ndarray] = {}
    any_of_all = False
    for name, array in expected.items():
        if array.dtype.kind == "f" or moved[name].shape != array.shape:
            continue
        differs = moved[name] != array
        if array.ndim == 0:
            any_of_all |= bool(differs)
        else:
            rows[len(array)] = rows.get(len(array), False) | differs.reshape(len(array), -1).any(1)
    return {name: _of_rows(array, rows) | any_of_all for name, array in expected.items() if array.dtype.kind == "f"}


def _of_rows(array: np.ndarray, rows: dict[int, np.ndarray]) -> np.ndarray:
    if array.ndim == 0 or len(array) not in rows:
        return np.zeros((), bool)
    return rows[len(array)].reshape(-1, *[1] * (array.ndim - 1))
