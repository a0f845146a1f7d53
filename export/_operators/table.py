"""The operators of TensorFlow that tf2onnx 1.17 writes wrongly or not at all: what writes each instead, and why.

To add one, write a function that gets tf2onnx's graph and the node and edits the graph in place (`writing.py` has what
that takes), and give it a row. A node that its function leaves as it is, is refused as an op without mapping. Whether
it gives what TensorFlow does, `tests/support/traced_functions.py` tells in a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import buckets, elementwise, fourier, near_zero, slices, tensor_lists


class Operator(NamedTuple):
    """A row of the table."""

    name: str
    write: Callable[[Any, Any], None]
    why: str


_COMPLEX = "ONNX has no complex tensors; `keras.ops.fft` and its kin"
_IN_PLACE = "what a loop writes into a `TensorArray` stands in the order of the steps, whatever the index"

OPERATORS = (
    Operator("SelectV2", elementwise.select, "`mask * x + (1 - mask) * y` is NaN where what is not chosen is infinite"),
    Operator("Erfc", elementwise.erfc, "no mapping; the exact GELU"),
    Operator("Bitcast", elementwise.sign_bit, "no mapping; `keras.ops.argmax` reads a sign bit, to order -0.0 and 0.0"),
    Operator("Log1p", near_zero.log1p, "no mapping"),
    Operator("Expm1", near_zero.expm1, "no mapping"),
    Operator("Bucketize", buckets.bucketize, "no mapping; `keras.layers.Discretization`"),
    Operator("LowerBound", buckets.bound, "no mapping; `keras.ops.searchsorted`"),
    Operator("UpperBound", buckets.bound, "no mapping; `keras.ops.searchsorted`"),
    Operator("XlaDynamicUpdateSlice", slices.update, "no mapping; `keras.ops.slice_update`"),
    Operator("Complex", fourier.joined, _COMPLEX),
    Operator("Real", fourier.part, _COMPLEX),
    Operator("Imag", fourier.part, _COMPLEX),
    Operator("ComplexAbs", fourier.magnitude, _COMPLEX),
    Operator("FFT", fourier.transform, _COMPLEX),
    Operator("FFT2D", fourier.transform, _COMPLEX),
    Operator("IFFT", fourier.transform, _COMPLEX),
    Operator("IFFT2D", fourier.transform, _COMPLEX),
    Operator("RFFT", fourier.real_transform, _COMPLEX),
    Operator("While", tensor_lists.loop, _IN_PLACE),
    Operator("StatelessWhile", tensor_lists.loop, _IN_PLACE),
    Operator("TensorListStack", tensor_lists.stacked, "taken from the loop alone, not from what puts it in order"),
)


def handlers() -> dict[str, tuple[Any, list[Any]]]:
    """Return the table in tf2onnx's form, by the names of the operators."""

    def handler(operator: Operator) -> Any:
        return lambda graph, node, name, arguments: operator.write(graph, node)

    return {operator.name: (handler(operator), []) for operator in OPERATORS}
