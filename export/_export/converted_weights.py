"""Comparison of the weights in an ONNX file with the variables of the Keras model.

Golden cases look up few rows of a large table, so they cannot show a fault of the converter in the other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import keras
import numpy as np
from onnx import numpy_helper

from .._errors import ExportError
from .._graphs.onnx_file import read
from .._graphs.traced import Weights
from .._graphs.walk import all_graphs
from .._standalone import verify
from .._tracing.weights import LARGE

# A damaged copy shares these with its variable. Unrelated float16 weights have 0.03 % of their values in common by
# chance; tables of a few values, such as one-hot rows, have more in common, but few different ones.
MIN_SHARE, MIN_DISTINCT = 1e-3, 8


def compare_weights(path: Path, copied: Weights, variables: Iterable[Any]) -> dict[str, int]:
    """Compare the weights in an ONNX file with the variables of a model, and return their numbers for the report.

    A constant is a damaged copy if it equals no variable and has many values of one at the same positions, in some
    order of the axes. A kernel times a mask is such a constant too, without a fault; so only copies of `copied`, the
    variables that operators read as they are, are searched for damage.

    Raises:
        ExportError: If a constant is a damaged copy.
    """
    arrays = (np.asarray(keras.ops.convert_to_numpy(variable)) for variable in variables)
    constants = [(_fingerprint(array), array) for array in _constants(path)]
    dtypes = {array.dtype for _, array in constants}

    def fingerprints(array: np.ndarray) -> set[Any]:
        return {_fingerprint(_cast(array, dtype)) for dtype in dtypes}

    of_variables = [fingerprints(array) for array in arrays if array.dtype.kind == "f"]
    known = set().union(*of_variables, *map(fingerprints, copied.values()))
    others = [array for fingerprint, array in constants if array.nbytes >= LARGE and fingerprint not in known]
    for constant, (name, array) in ((constant, item) for constant in others for item in copied.items()):
        if missing := _missing_values(array, constant):
            raise ExportError(
                f"The conversion damaged weight `{name}`: {missing:,} of its {array.size:,} values are missing in "
                f"{verify.MODEL}. This is a fault of keras-attn or tf2onnx; please report it with the model."
            )
    there = {fingerprint for fingerprint, _ in constants}
    unchanged = sum(not there.isdisjoint(each) for each in of_variables)
    return {"variables": len(of_variables), "unchanged": unchanged, "other_constants": len(others)}


def _constants(path: Path) -> Iterator[np.ndarray]:
    """Yield the floating-point weights and constants of a file, those in bodies too."""
    traced = read(path)
    yield from traced.weights.values()
    tensors = (tensor for graph in all_graphs(traced.model.graph) for tensor in graph.initializer)
    yield from (array for array in map(numpy_helper.to_array, tensors) if array.dtype.kind == "f")


def _cast(array: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(over="ignore"):  # a weight beyond float16 stays float32 in the file
        return array.astype(dtype, copy=False)


def _fingerprint(array: np.ndarray) -> tuple[str, int, int]:
    """Return dtype, size and the sum of all bit patterns, which does not depend on shape and order."""
    bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    return array.dtype.str, array.size, int(bits.sum(dtype=np.uint64))


def _missing_values(array: np.ndarray, constant: np.ndarray) -> int:
    """Return how many values of a variable a damaged copy lacks; 0 if the constant is no such copy."""
    values, constant = array.squeeze(), constant.squeeze()
    for ordered in map(values.transpose, permutations(range(values.ndim))):
        if ordered.shape == constant.shape:
            equal = _cast(ordered, constant.dtype) == constant
            shared = constant[equal & (constant != 0)]
            if shared.size > MIN_SHARE * values.size and np.unique(shared).size >= MIN_DISTINCT:
                return int(values.size - np.count_nonzero(equal))
    return 0
