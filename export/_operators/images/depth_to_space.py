"""Handlers for `DepthToSpace`, `SpaceToDepth` and the batch variants."""

from typing import Any

from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import GraphBuilder, NodeReplacement, RejectionReason
from ..kernel_dtypes import FLOATS, KERNEL_DTYPES


def depth_to_space_and_space_to_depth(graph: Any, node: Any) -> None:
    """Convert `DepthToSpace` and `SpaceToDepth` with tf2onnx, or to `Transpose` if onnxruntime has no kernel."""
    # (B, H, W, size² C) from or to (B, size H, size W, C)
    size = node.get_attr_value("block_size")
    is_to_depth = node.type == "SpaceToDepth"
    is_channels_last = node.get_attr_value("data_format", b"NHWC") == b"NHWC"
    if graph.get_dtype(node.input[0]) in KERNEL_DTYPES["SpaceToDepth"] or not is_channels_last:
        convert_with_tf2onnx(graph, node)
        return
    op = NodeReplacement(graph, node)
    (images,) = op.inputs
    shape = op.Shape(images)
    batch, height, width = (op.Gather(shape, [axis]) for axis in range(3))
    if is_to_depth:
        height, width = op.Div(height, size), op.Div(width, size)
        blocks = op.Concat(batch, height, [size], width, [size], [-1], axis=0)
    else:
        blocks = op.Concat(batch, height, width, [size], [size], [-1], axis=0)
    transposed = op.Transpose(op.Reshape(images, blocks), perm=[0, 1, 3, 2, 4, 5])
    if not is_to_depth:
        height, width = op.Mul(height, size), op.Mul(width, size)
    op.finish("Reshape", transposed, op.concat_shape(batch, height, width, -1))


def space_to_batch_nd_and_batch_to_space_nd(graph: Any, node: Any) -> RejectionReason:
    """Convert `SpaceToBatchND` and `BatchToSpaceND` with tf2onnx; integers in float64, exact up to 32 bits."""
    dtype = graph.get_dtype(node.input[0])
    if dtype == TensorProto.INT64:
        return "onnxruntime supports floats only, which are not exact for int64"
    if dtype not in FLOATS:
        widened = GraphBuilder(graph).Cast(node.input[0], to=TensorProto.DOUBLE, output_dtype=TensorProto.DOUBLE)
        graph.copy_shape(node.input[0], widened)
        graph.replace_inputs(node, [widened, *node.input[1:]])
        graph.set_dtype(node.output[0], TensorProto.DOUBLE)
        cast = graph.insert_new_node_on_output("Cast", node.output[0], to=dtype)
        graph.set_dtype(cast.output[0], dtype)
        graph.copy_shape(node.output[0], cast.output[0])
    convert_with_tf2onnx(graph, node)
    return None
