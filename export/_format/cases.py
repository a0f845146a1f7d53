"""Read golden cases from the `.npz` file of a bundle."""

from pathlib import Path

import numpy as np

from .names import Arrays, BundleError, Case

ZERO_LIMIT = np.iinfo(np.int16).min  # stands for a limit of 0; other limits are stored as int16: 2 ** (exponent / 2)


def load_cases(path: Path) -> list[Case]:
    """Return the golden cases in a file.

    Raises:
        BundleError: If the file does not contain golden cases.
    """
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
    for number, case_name in enumerate(names):
        inputs, outputs, limits = (groups.get((str(number), kind), {}) for kind in ("inputs", "outputs", "rounding"))
        cases.append(Case(case_name, inputs, outputs, {name: _decoded(array) for name, array in limits.items()}))
    return cases


def _decoded(limits: np.ndarray) -> np.ndarray:
    return limits if limits.dtype == bool else np.where(limits == ZERO_LIMIT, 0.0, 2.0 ** (limits / 2.0))
