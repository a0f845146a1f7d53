"""Comparison of the weights in an ONNX file with the variables of the Keras model.

Golden cases look up few rows of a large table, so they cannot show a fault of the converter in the other rows.
Therefore each variable is searched for in the file, by a fingerprint of its bits and in all orders of its axes. A
constant is a damaged copy if it equals no variable and has many values of a variable at the same positions, in some
order of the axes. The product of a kernel and a mask, or the frozen original of a fine-tuned table, is such a constant
without a fault; so only copies of unfolded variables that are absent from the file are searched for damage.
"""

from collections.abc import Iterable, Set
from itertools import permutations, product
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from onnx import numpy_helper

from .._errors import ExportError
from .._onnx.model_files import load_model
from .._onnx.traced_model import Weights
from .._onnx.traversal import iter_graphs
from .._tracing.weight_inputs import MIN_INPUT_BYTES, to_array

# Share of the values that a damaged copy has in common with its variable, at the same positions. Unrelated float16
# weights have 0.03 % in common by chance.
MIN_EQUAL_SHARE = 1e-3
# Unrelated tables of a few values, such as one-hot rows, have a larger share in common, but few distinct values.
MIN_DISTINCT_VALUES = 8
LSTM_GATES = 4  # the gates of a GRU have the same order in Keras and ONNX
Fingerprint = tuple[Any, ...]  # dtype, size, sum of all bit patterns, CRC in the order of the values


@np.errstate(over="ignore")  # a weight beyond float16 stays float32 in the file
def compare_weights(path: Path, unfolded: Weights, variables: Iterable[Any]) -> dict[str, int]:
    """Return the numbers of variables, of their copies in an ONNX file and of other large constants.

    Raises `ExportError` if the file has a damaged copy of a variable in `unfolded`, unchanged by constant folding.
    """
    traced = load_model(path)
    tensors = (tensor for graph in iter_graphs(traced.model.graph) for tensor in graph.initializer)
    arrays = (*traced.weights.values(), *map(numpy_helper.to_array, tensors))
    constants = [(_compute_fingerprint(array, array.dtype), array) for array in arrays if array.dtype.kind == "f"]
    in_file = {fingerprint for fingerprint, _ in constants}
    values = (to_array(variable.value) for variable in variables if variable.dtype in ("float16", "float32", "float64"))
    variable_fingerprints = [_find_fingerprint(array, in_file) for array in values]
    large_constants = (constant for constant in constants if constant[1].nbytes >= MIN_INPUT_BYTES)
    unmatched = [array for fingerprint, array in large_constants if fingerprint not in variable_fingerprints]
    for constant, (name, array) in product(unmatched, unfolded.items()):
        if (missing := _count_missing_values(array, constant)) and _find_fingerprint(array, in_file) is None:
            raise ExportError(
                f"The conversion damaged weight `{name}`: {missing:,} of its {array.size:,} values are missing in the "
                "ONNX file. This is a fault of keras-attn or tf2onnx; please report it with the model."
            )
    unchanged = len(variable_fingerprints) - variable_fingerprints.count(None)
    return {"variables": len(variable_fingerprints), "unchanged": unchanged, "other_constants": len(unmatched)}


def _compute_fingerprint(array: np.ndarray, dtype: Any) -> Fingerprint:
    """Return a checksum of an array after a cast to `dtype`."""
    values = np.ascontiguousarray(array, dtype)
    return dtype, array.size, int(values.view(f"u{dtype.itemsize}").sum(dtype=np.uint64)), crc32(values.data)


def _find_fingerprint(array: np.ndarray, in_file: Set[Fingerprint]) -> Fingerprint | None:
    """Return the fingerprint of an array in a file, in any order of its axes; `None` if it is absent."""
    values = array.squeeze()
    orders = [*permutations(range(values.ndim))]
    for dtype in {dtype for dtype, size, *_ in in_file if size == values.size}:
        # The identity comes first, then the reversed order and that of ONNX's convolutions.
        for order in (orders[0], *orders[:0:-1]):
            if (fingerprint := _compute_fingerprint(values.transpose(order), dtype)) in in_file:
                return fingerprint
            if not any(fingerprint[:3] == present[:3] for present in in_file):
                break  # the sum of the bits is the same for all orders
    return None


def _count_missing_values(array: np.ndarray, constant: np.ndarray) -> int:
    """Return the number of values of a variable that differ in a damaged copy; 0 if the constant is no copy."""
    values, constant = array.squeeze(), constant.squeeze()
    for transposed in map(values.transpose, permutations(range(values.ndim))):
        if transposed.shape == constant.shape:
            transposed = transposed.astype(constant.dtype)
            if _has_reordered_gates(transposed, constant):
                return 0
            equal = transposed == constant
            shared = constant[equal & (constant != 0)]
            if shared.size > MIN_EQUAL_SHARE * values.size and np.unique(shared).size >= MIN_DISTINCT_VALUES:
                return int(values.size - np.count_nonzero(equal))
    return 0


def _has_reordered_gates(array: np.ndarray, constant: np.ndarray) -> bool:
    """Return True if a constant of shape (4 * units, n) has the gates of an LSTM kernel in another order."""
    # The gates are blocks along the first axis: i, f, c, o in Keras and i, o, f, c in ONNX's `LSTM`.
    if array.ndim != 2 or len(array) % LSTM_GATES:
        return False
    gates, constant_gates = (values.reshape(LSTM_GATES, -1) for values in (array, constant))
    return {gate.tobytes() for gate in gates} == {gate.tobytes() for gate in constant_gates}
