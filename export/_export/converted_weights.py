"""Comparison of the weights in an ONNX file with the variables of the Keras model.

Golden cases look up few rows of a large table, so they cannot show a fault of the converter in the other rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper

from .._errors import ExportError
from .._graphs.onnx_file import read
from .._graphs.traced import Weights
from .._graphs.walk import all_graphs
from .._tracing.weights import LARGE, array_of

# A damaged copy shares these with its variable. Unrelated float16 weights have 0.03 % of their values in common by
# chance; tables of a few values, such as one-hot rows, have more in common, but few different ones.
MIN_SHARE, MIN_DISTINCT = 1e-3, 8


@np.errstate(over="ignore")  # a weight beyond float16 stays float32 in the file
def compare_weights(path: Path, copied: Weights, variables: Iterable[Any]) -> dict[str, int]:
    """Compare the weights in an ONNX file with the variables of a model, and return their numbers for the report.

    A constant is a damaged copy if it equals no variable and has many values of one at the same positions, in some
    order of the axes. A kernel times a mask is such a constant too, without a fault; so only copies of `copied`, the
    variables that operators read as they are, are searched for damage.

    Raises:
        ExportError: If a constant is a damaged copy.
    """
    traced = read(path)
    tensors = (tensor for graph in all_graphs(traced.model.graph) for tensor in graph.initializer)
    arrays = (*traced.weights.values(), *map(numpy_helper.to_array, tensors))
    constants = [(_fingerprint(array, array.dtype), array) for array in arrays if array.dtype.kind == "f"]
    dtypes = {array.dtype for _, array in constants}
    values = (array_of(variable.value) for variable in variables if variable.dtype in ("float16", "float32", "float64"))
    of_variables = [{_fingerprint(array, dtype) for dtype in dtypes} for array in values]
    known = set().union(*of_variables)
    others = [array for fingerprint, array in constants if array.nbytes >= LARGE and fingerprint not in known]
    for constant, (name, array) in product(others, copied.items()):
        if missing := _missing_values(array, constant):
            raise ExportError(
                f"The conversion damaged weight `{name}`: {missing:,} of its {array.size:,} values are missing in the "
                "ONNX file. This is a fault of keras-attn or tf2onnx; please report it with the model."
            )
    there = {fingerprint for fingerprint, _ in constants}
    unchanged = sum(not there.isdisjoint(fingerprints) for fingerprints in of_variables)
    return {"variables": len(of_variables), "unchanged": unchanged, "other_constants": len(others)}


def _fingerprint(array: np.ndarray, dtype: Any) -> tuple[str, int, int]:
    """Return dtype, size and the sum of all bit patterns, which does not depend on shape and order, after a cast."""
    bits = np.ascontiguousarray(array, dtype).view(f"u{dtype.itemsize}")
    return dtype.str, array.size, int(bits.sum(dtype=np.uint64))


def _missing_values(array: np.ndarray, constant: np.ndarray) -> int:
    """Return how many values of a variable a damaged copy lacks; 0 if the constant is no such copy."""
    values, constant = array.squeeze(), constant.squeeze()
    for ordered in map(values.transpose, permutations(range(values.ndim))):
        if ordered.shape == constant.shape:
            equal = ordered.astype(constant.dtype) == constant
            shared = constant[equal & (constant != 0)]
            if shared.size > MIN_SHARE * values.size and np.unique(shared).size >= MIN_DISTINCT:
                return int(values.size - np.count_nonzero(equal))
    return 0
