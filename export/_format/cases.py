"""Read golden cases from the `.npz` file of a bundle."""

from pathlib import Path

import numpy as np

from .names import Arrays, BundleError, Case

# Code that stands for a limit of 0. The int16 code of any other limit is 2 * log2(limit), rounded up.
ZERO_LIMIT_CODE = np.iinfo(np.int16).min


def load_cases(path: Path) -> list[Case]:
    """Return the golden cases in a file, or raise `BundleError`."""
    try:
        with np.load(path, allow_pickle=False) as file:  # unpickling could run code
            arrays: Arrays = {key: file[f"{key}.npy"] for key in file.files}
        names = arrays.pop("cases").tolist()
        groups: dict[tuple[str, str], Arrays] = {}
        for key, array in arrays.items():  # `0/inputs/NAME`, `0/outputs/NAME`, `0/rounding/NAME`
            index, kind, name = key.split("/", 2)
            groups.setdefault((index, kind), {})[name] = array.astype(object) if array.dtype.kind == "U" else array
    except Exception as error:  # NumPy and zipfile raise errors of many classes for damaged files
        raise BundleError(f"{path} is not a file of golden cases ({type(error).__name__}: {error}).") from error
    if not names:
        raise BundleError(f"{path} contains no golden case: there is nothing to compare.")
    cases = []
    for row, case_name in enumerate(names):
        inputs, outputs, codes = (groups.get((str(row), kind), {}) for kind in ("inputs", "outputs", "rounding"))
        cases.append(Case(case_name, inputs, outputs, {name: _decode_limits(array) for name, array in codes.items()}))
    return cases


def _decode_limits(codes: np.ndarray) -> np.ndarray:
    return codes if codes.dtype == bool else np.where(codes == ZERO_LIMIT_CODE, 0.0, 2.0 ** (codes / 2.0))
