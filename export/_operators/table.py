"""The operators of TensorFlow that tf2onnx 1.17 writes wrongly or not at all: what writes each instead, and why.

To add one, write a function that gets tf2onnx's graph and the node and edits the graph in place (`writing.py` has what
that takes), and give it a row. A node that its function leaves as it is, is refused as an op without mapping. Whether
it gives what TensorFlow does, `tests/support/traced_functions.py` tells in a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import (
    buckets,
    elementwise,
    fourier,
    integers,
    near_zero,
    running,
    scattered,
    selection,
    slices,
    special,
    tensor_lists,
    wider,
)


class Operator(NamedTuple):
    """A row of the table."""

    name: str
    write: Callable[[Any, Any], None]
    why: str


_COMPLEX = "ONNX has no complex tensors; `keras.ops.fft` and its kin"
_IN_PLACE = "what a loop writes into a `TensorArray` stands in the order of the steps, whatever the index"

_SEGMENTS = "numbers of -1 are those of the last segment, and empty segments infinite"
_REPEATED = "of what is put into one row, one is kept and no sum made"

INTEGERS = (
    Operator("FloorDiv", integers.quotient, "`Div` rounds integers towards zero"),
    Operator("FloorMod", integers.remainder, "made of `Div`, which rounds integers towards zero"),
    Operator("TruncateMod", integers.truncated, "no mapping"),
    Operator("LeftShift", integers.shift, "integers of 64 bits and counts beyond the bits"),
    Operator("RightShift", integers.shift, "8, 16 and 64 bits shift in zeros where the sign belongs"),
    Operator("OneHot", selection.one_hot, "-1 is the last class; few dtypes"),
    Operator("TopKV2", selection.top_k, "integers become float32, which has not all of them"),
    Operator("InTopKV2", selection.in_top_k, "no mapping; `keras.ops.in_top_k`"),
    Operator("GatherV2", selection.gather, "negative `batch_dims` are taken as they are"),
    Operator("SparseSoftmaxCrossEntropyWithLogits", selection.cross_entropy, "the logarithm of a softmax that is 0"),
    Operator("BroadcastArgs", selection.broadcast, "no mapping; `keras.ops.linspace` between tensors"),
    Operator("ScatterNd", scattered.scatter, _REPEATED),
    *(Operator(f"TensorScatter{each}", scattered.scatter_into, "few dtypes") for each in ("Add", "Sub", "Max", "Min")),
    *(Operator(f"Segment{each}", scattered.segments, _SEGMENTS) for each in ("Sum", "Prod", "Max", "Min", "Mean")),
    *(Operator(f"UnsortedSegment{each}", scattered.segments, _SEGMENTS) for each in ("Sum", "Prod", "Max", "Min")),
    *(
        Operator(f"SparseSegment{each}{counted}", scattered.segments, _SEGMENTS)
        for each in ("Sum", "Mean", "SqrtN")
        for counted in ("", "WithNumSegments")
    ),
    Operator("Bincount", scattered.counts, "no weights"),
    Operator("DenseBincount", scattered.counts, "no weights"),
    Operator("Cumprod", running.product, "the last axis is refused"),
    Operator("DynamicStitch", scattered.stitched, "rows that are given twice count twice"),
    Operator("ParallelDynamicStitch", scattered.stitched, "rows that are given twice count twice"),
    Operator("InvertPermutation", scattered.inverted, "int32 comes out as int64"),
    Operator("Erfinv", special.inverse_error_function, "no mapping; `keras.ops.erfinv`"),
    Operator("BesselI0", special.bessel, "no mapping; `keras.ops.i0`"),
    Operator("Atan2", elementwise.arctangent, "NaN of two infinities, and zeros have no sign"),
    Operator("TruncateDiv", elementwise.truncated, "floats are not cut"),
    Operator("IsFinite", wider.is_finite, "of two operators, of which one takes no float16"),
    *(Operator(each, wider.widened, "few dtypes, or integers become float32") for each in wider.FORMS),
    *(Operator(each, wider.reduced, "few dtypes; the mean of nothing is 0") for each in wider.REDUCED),
    Operator("MatrixBandPart", running.band, "a mask times what is infinite or NaN is NaN"),
)

OPERATORS = (
    *INTEGERS,
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
