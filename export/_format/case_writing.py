"""Write golden cases to an `.npz` file."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .cases import ZERO_LIMIT
from .names import Case


def save_cases(path: Path, cases: Iterable[Case]) -> None:
    """Write golden cases; `cases.load_cases` reads them. Rounding limits are rounded up to powers of the root of 2."""
    cases = list(cases)
    arrays = {"cases": np.array([case.name for case in cases])}
    for index, case in enumerate(cases):
        arrays |= {f"{index}/inputs/{name}": without_objects(value) for name, value in case.inputs.items()}
        arrays |= {f"{index}/outputs/{name}": without_objects(value) for name, value in case.outputs.items()}
        arrays |= {f"{index}/rounding/{name}": _encode_rounding(value) for name, value in case.rounding.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def without_objects(array: np.ndarray) -> np.ndarray:
    """Return an array that a file may hold: strings in NumPy's dtype `U`."""
    return array.astype(str) if array.dtype == object else array


def _encode_rounding(limits: np.ndarray) -> np.ndarray:
    """Return `ceil(2 * log2(limit))` as int16, which compresses well; booleans unchanged."""
    if limits.dtype == bool:
        return limits
    with np.errstate(divide="ignore"):
        steps = np.ceil(2 * np.log2(limits.astype(np.float64)))
    return np.where(np.isfinite(steps), steps, ZERO_LIMIT).astype(np.int16)
