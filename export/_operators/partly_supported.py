"""Handlers that pass supported cases to tf2onnx and reject those that it converts wrongly."""

from typing import Any

from onnx import TensorProto

from .._private_api.tf2onnx_internals import convert_with_tf2onnx
from .graph_builder import RejectionReason, constant_value
from .kernel_dtypes import numpy_dtype


def non_max_suppression(graph: Any, node: Any) -> RejectionReason:
    """Convert `NonMaxSuppressionV5` with tf2onnx, which ignores `soft_nms_sigma` (onnx/tensorflow-onnx#1607)."""
    sigma = constant_value(graph, node.input[5])
    if sigma is None or sigma != 0:
        return "`soft_nms_sigma` must be a constant 0: ONNX's operator does not lower scores"
    convert_with_tf2onnx(graph, node)
    return None


def crop_and_resize(graph: Any, node: Any) -> RejectionReason:
    """Convert bilinear `CropAndResize` with tf2onnx; for "nearest", ONNX rounds halves to another neighbour."""
    if node.get_attr_value("method", b"bilinear") != b"bilinear":
        return "only bilinear resizing is supported: ONNX rounds to another nearest neighbour"
    convert_with_tf2onnx(graph, node)
    return None


def matrix_determinant(graph: Any, node: Any) -> RejectionReason:
    """Convert `MatrixDeterminant` of float32 (..., N, N) to `Det` with tf2onnx; onnxruntime has no other kernel."""
    if graph.get_dtype(node.input[0]) != TensorProto.FLOAT:
        return "onnxruntime has `Det` of float32 only"
    convert_with_tf2onnx(graph, node)
    return None


def ctc_greedy_decoder(graph: Any, node: Any) -> str:
    """Reject `CTCGreedyDecoder`: tf2onnx always takes the last class as the blank."""
    return "the index of the blank class cannot be converted"


def fused_batch_norm(graph: Any, node: Any) -> RejectionReason:
    """Convert `FusedBatchNorm` in inference with tf2onnx; training reads batch moments, which ONNX does not return."""
    if any(graph.find_output_consumers(name) for name in node.output[1:]):
        return "only inference is supported, without batch moments"
    convert_with_tf2onnx(graph, node)
    return None


def as_string(graph: Any, node: Any) -> RejectionReason:
    """Convert `AsString` of integers to `Cast` with tf2onnx; TensorFlow formats others as `1.000000` and `true`."""
    options = ("precision", "scientific", "shortest", "width", "fill")
    is_integer = numpy_dtype(graph.get_dtype(node.input[0])).kind in "iu"
    if not is_integer or any(node.get_attr_value(name) not in (None, b"", 0, -1) for name in options):
        return "only integers without format options are supported"
    convert_with_tf2onnx(graph, node)
    return None
