"""The operators of TensorFlow that tf2onnx 1.17 writes wrongly or not at all: what writes each instead, and why.

To add one, write a function that gets tf2onnx's graph and the node and edits the graph in place (`writing.py` has what
that takes), and give it a row. A node that its function leaves as it is, is refused as an op without mapping. Whether
it gives what TensorFlow does, `tests/support/traced_functions.py` tells in a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import (
    bands,
    buckets,
    colours,
    elementwise,
    fourier,
    matrices,
    near_zero,
    patches,
    projections,
    resampling,
    resizing,
    singular_values,
    slices,
    spaces,
    tensor_lists,
    transposed_convolutions,
)


class Operator(NamedTuple):
    """A row of the table."""

    name: str
    write: Callable[[Any, Any], None]
    why: str


_COMPLEX = "ONNX has no complex tensors; `keras.ops.fft` and its kin"
_ROUNDED = "rounds otherwise than TensorFlow at some sizes; wants floats, and rank 4"
_GAPS = "negative padding at unknown sizes where windows leave gaps; integers as float32"
_BELOW_STRIDE = "negative padding where a kernel is shorter than its stride; refuses some sizes"
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
    Operator("ResizeNearestNeighbor", resizing.resize, _ROUNDED),
    Operator("ResizeBilinear", resizing.resize, _ROUNDED),
    Operator("ResizeBicubic", resizing.resize, "TensorFlow's weights are in steps of 1/1024"),
    Operator("ResizeArea", resizing.resize, "ONNX has no such mode; the nearest was taken"),
    Operator("ScaleAndTranslate", resampling.scale_and_translate, "no mapping; resizing with `antialias`, and Lanczos"),
    Operator("ImageProjectiveTransformV2", projections.project, "no mapping; `keras.ops.image.affine_transform`"),
    Operator("ImageProjectiveTransformV3", projections.project, "no mapping; `keras.ops.image.affine_transform`"),
    Operator("RGBToHSV", colours.to_hsv, "no mapping"),
    Operator("HSVToRGB", colours.to_rgb, "no mapping"),
    Operator("ExtractImagePatches", patches.extract, "wants sizes that are known; multiplies with zero"),
    Operator("ExtractVolumePatches", patches.extract, "no mapping"),
    Operator("Conv2D", patches.convolve, "onnxruntime has floats alone"),
    Operator("Conv3D", patches.convolve, "one group whatever the kernel says; onnxruntime has floats alone"),
    Operator("DepthwiseConv2dNative", patches.convolve_depthwise, _GAPS),
    *(Operator(name, patches.pool, _GAPS) for name in ("MaxPool", "MaxPoolV2", "MaxPool3D", "AvgPool", "AvgPool3D")),
    Operator("Conv2DBackpropInput", transposed_convolutions.convolve_back, _BELOW_STRIDE),
    Operator("Conv3DBackpropInputV2", transposed_convolutions.convolve_back, _BELOW_STRIDE),
    Operator("InvertPermutation", matrices.inverted, "int64 where it is int32"),
    *(Operator(name, spaces.rearrange, "onnxruntime has floats alone") for name in ("DepthToSpace", "SpaceToDepth")),
    Operator("MatrixBandPart", bands.band_part, "multiplies with a mask, where infinity becomes NaN"),
    Operator("MatrixSolve", matrices.solve, "no mapping"),
    Operator("MatrixInverse", matrices.inverse, "no mapping"),
    Operator("MatrixTriangularSolve", matrices.triangular_solve, "no mapping"),
    Operator("Lu", matrices.lower_upper, "no mapping"),
    Operator("LogMatrixDeterminant", matrices.log_determinant, "no mapping"),
    Operator("MatrixDeterminant", matrices.determinant, "onnxruntime has no `Det` of float64"),
    Operator("Cholesky", matrices.cholesky, "no mapping"),
    Operator("SelfAdjointEigV2", singular_values.eigenvalues, "no mapping"),
    Operator("Svd", singular_values.decompose, "no mapping"),
    Operator("Qr", matrices.orthogonal, "no mapping"),
    Operator("TensorListStack", tensor_lists.stacked, "taken from the loop alone, not from what puts it in order"),
)


def handlers() -> dict[str, tuple[Any, list[Any]]]:
    """Return the table in tf2onnx's form, by the names of the operators."""

    def handler(operator: Operator) -> Any:
        return lambda graph, node, name, arguments: operator.write(graph, node)

    return {operator.name: (handler(operator), []) for operator in OPERATORS}
