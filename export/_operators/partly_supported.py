"""Handlers that pass supported cases to tf2onnx and reject those it converts wrongly."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from .._private_api.tf2onnx_internals import convert_with_tf2onnx

WHOLE = {getattr(TensorProto, f"{kind}{bits}") for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)}


def suppressed(graph: Any, node: Any) -> None:
    """`NonMaxSuppressionV5`; ONNX has none that lowers scores, and any sigma below 1 was taken for 0."""
    sigma = node.inputs[5]
    if sigma.is_const() and sigma.get_tensor_value(as_list=False).item() == 0:
        convert_with_tf2onnx(graph, node)


def cropped(graph: Any, node: Any) -> None:
    """`CropAndResize`; the nearest is another in ONNX."""
    if node.get_attr_value("method", b"bilinear") == b"bilinear":
        convert_with_tf2onnx(graph, node)


def determinant(graph: Any, node: Any) -> None:
    """Map `MatrixDeterminant` of float32; onnxruntime has no kernel of `Det` for other dtypes."""
    if graph.get_dtype(node.input[0]) == TensorProto.FLOAT:
        convert_with_tf2onnx(graph, node)


def leave_unmapped(graph: Any, node: Any) -> None:
    """Leave a node that tf2onnx would map to wrong results; the export refuses a node without a mapping by name."""


def normalized(graph: Any, node: Any) -> None:
    """`FusedBatchNorm`; in training it gives the moments too, and they have no form."""
    if not any(graph.find_output_consumers(each) for each in node.output[1:]):
        convert_with_tf2onnx(graph, node)


def as_text(graph: Any, node: Any) -> None:
    """`AsString` of whole numbers; others are written otherwise, `1.000000` and `true`."""
    formats = ("precision", "scientific", "shortest", "width", "fill")
    if graph.get_dtype(node.input[0]) in WHOLE and all(
        node.get_attr_value(each) in (None, b"", 0, -1) for each in formats
    ):
        convert_with_tf2onnx(graph, node)
