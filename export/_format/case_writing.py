"""Write golden cases to an `.npz` file."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .cases import ZERO_LIMIT_CODE
from .names import Case


def save_cases(path: Path, cases: Iterable[Case]) -> None:
    """Write golden cases, which `cases.load_cases` reads."""
    cases = list(cases)
    arrays = {"cases": np.array([case.name for case in cases])}
    for index, case in enumerate(cases):
        arrays |= {f"{index}/inputs/{name}": to_unicode_array(value) for name, value in case.inputs.items()}
        arrays |= {f"{index}/outputs/{name}": to_unicode_array(value) for name, value in case.outputs.items()}
        arrays |= {f"{index}/rounding/{name}": _encode_limits(value) for name, value in case.rounding_limits.items()}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def to_unicode_array(array: np.ndarray) -> np.ndarray:
    """Convert strings from dtype `object`, which only pickle can store, to `U`. Return other arrays unchanged."""
    return array.astype(str) if array.dtype == object else array


def _encode_limits(limits: np.ndarray) -> np.ndarray:
    """Return `ceil(2 * log2(limit))` of each limit as int16. Return booleans unchanged."""
    # A limit is an estimate, so it may be rounded up to a power of sqrt(2), by a factor of 1.42 at most. int16 codes
    # compress well; float64 limits would be the largest part of the file. A limit is infinite only if it overflows
    # float64, since differences from NaN or infinity count as 0. It gets the code of 0, and 0 is the strictest limit.
    if limits.dtype == bool:
        return limits
    with np.errstate(divide="ignore"):
        exponents = np.ceil(2 * np.log2(limits.astype(np.float64)))
    return np.where(np.isfinite(exponents), exponents, ZERO_LIMIT_CODE).astype(np.int16)
