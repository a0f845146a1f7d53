"""Handlers for `DepthToSpace`, `SpaceToDepth` and the batch variants."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import Replacement, Writer

MOVED = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.UINT8}


def rearrange(graph: Any, node: Any) -> None:
    """`DepthToSpace` and `SpaceToDepth`, channels last; floats as tf2onnx has them."""
    size, to_depth = node.get_attr_value("block_size"), node.type == "SpaceToDepth"
    if graph.get_dtype(node.input[0]) in MOVED or node.get_attr_value("data_format", b"NHWC") != b"NHWC":
        convert_with_tf2onnx(graph, node)
        return
    write = Replacement(graph, node)
    (images,) = write.inputs
    shape = write("Shape", images)
    batch, height, width = (write("Gather", shape, [axis]) for axis in range(3))
    if to_depth:
        height, width = (write("Div", each, size) for each in (height, width))
    apart = (batch, height, [size], width, [size], [-1]) if to_depth else (batch, height, width, [size], [size], [-1])
    moved = write("Transpose", write("Reshape", images, write("Concat", *apart, axis=0)), perm=[0, 1, 3, 2, 4, 5])
    if not to_depth:
        height, width = (write("Mul", each, size) for each in (height, width))
    write.last("Reshape", moved, write("Concat", batch, height, width, [-1], axis=0))


def in_blocks(graph: Any, node: Any) -> None:
    """`SpaceToDepth` and its kin as tf2onnx has them; onnxruntime has them of floats, and float64 holds 32 bits."""
    kind = graph.get_dtype(node.input[0])
    if kind == TensorProto.INT64:
        return
    if kind not in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
        wide = Writer(graph)("Cast", node.input[0], to=TensorProto.DOUBLE, gives=TensorProto.DOUBLE)
        graph.copy_shape(node.input[0], wide)
        graph.replace_inputs(node, [wide, *node.input[1:]])
        graph.set_dtype(node.output[0], TensorProto.DOUBLE)
        back = graph.insert_new_node_on_output("Cast", node.output[0], to=kind)
        graph.set_dtype(back.output[0], kind)
        graph.copy_shape(node.output[0], back.output[0])
    convert_with_tf2onnx(graph, node)
