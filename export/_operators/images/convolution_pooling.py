"""Handlers for convolutions, pooling and patch extraction.

onnxruntime convolves float32 and float16 only. It also pads wrongly if windows leave gaps and image sizes are unknown
(`image_windows.py`). In both cases `Gather` extracts the windows, which are then multiplied or reduced.
"""

import math
from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..._private_api.tf2onnx_patches import CONVOLUTION_FLOATS
from ..graph_builder import GraphBuilder, NodeReplacement, RejectionReason
from ..kernel_dtypes import WIDER_SELECTION_DTYPES, find_kernel_dtype, numpy_dtype
from .image_windows import Windows

_LAYOUT_REJECTION = "integers and float64 need a known kernel shape, and a known number of channels on the last axis"


def extract_patches(graph: Any, node: Any) -> None:
    """Convert `ExtractImagePatches` and `ExtractVolumePatches` of (B, ..., C) to `Gather` along each spatial axis."""
    # tf2onnx convolves with one-hot kernels. This is wrong for infinities, because zero times infinity is NaN
    sizes = node.get_attr_value("ksizes")[1:-1]
    windows = Windows(graph, node, sizes, node.get_attr_value("strides"), node.get_attr_value("rates") or [])
    op = NodeReplacement(graph, node)
    (images,) = op.inputs
    patches, leading_dims = windows.extract(op, images)
    channels = op.Gather(op.Shape(images), [-1])
    op.finish("Reshape", patches, op.Concat(leading_dims, op.Mul(channels, math.prod(sizes)), axis=0))


def conv2d_and_conv3d(graph: Any, node: Any) -> RejectionReason:
    """Convert `Conv2D` and `Conv3D` of float32 and float16 with tf2onnx, other dtypes to a `MatMul` with windows."""
    # Images are (B, ..., C) or (B, C, ...), kernels (sizes ..., C / groups, filters)
    kernel_shape = graph.get_shape(node.input[1])
    image_shape = graph.get_shape(node.input[0])
    channels = image_shape[1 if node.get_attr_str("data_format").startswith("NC") else -1]
    if node.get_attr_str("padding") == "SAME" and -1 in kernel_shape[:-2]:
        return "its SAME padding depends on a kernel size that is unknown"
    windows = _make_windows(graph, node, kernel_shape[:-2])
    if graph.get_dtype(node.input[0]) in CONVOLUTION_FLOATS:
        _pad_and_convert(graph, node, windows)
        # tf2onnx sets the number of groups of `Conv2D` only
        if channels > 0 and kernel_shape[-2] > 0:
            node.set_attr("group", channels // kernel_shape[-2])
        return None
    if channels > kernel_shape[-2] > 0:
        return "convolutions of integers and float64 must have one group"
    if -1 in kernel_shape or channels != kernel_shape[-2] or image_shape[-1] != channels:
        return _LAYOUT_REJECTION
    op = NodeReplacement(graph, node)
    # tf2onnx has already merged `BiasAdd` into the node
    images, kernel, *bias = op.inputs
    window_elements = math.prod(kernel_shape[:-1])
    patches, leading_dims = windows.extract(op, images)
    rows = op.Reshape(patches, op.fold.Concat(leading_dims, [window_elements], axis=0))
    product = op.MatMul(rows, op.Reshape(kernel, [window_elements, kernel_shape[-1]]))
    return op.finish("Add" if bias else "Identity", product, *bias)


def depthwise_conv2d_native(graph: Any, node: Any) -> RejectionReason:
    """Convert `DepthwiseConv2dNative` of float32 and float16 with tf2onnx, other dtypes to `ReduceSum` of products."""
    # Images are (B, H, W, C), kernels (height, width, C, multiplier)
    kernel_shape = graph.get_shape(node.input[1])
    windows = _make_windows(graph, node, kernel_shape[:2])
    if graph.get_dtype(node.input[0]) in CONVOLUTION_FLOATS:
        _pad_and_convert(graph, node, windows)
        return None
    if -1 in kernel_shape or windows.first_spatial_axis != 1:
        return _LAYOUT_REJECTION
    op = NodeReplacement(graph, node)
    images, kernel = op.inputs
    patches, leading_dims = windows.extract(op, images)
    sums = op.ReduceSum(op.Mul(op.Unsqueeze(patches, [-1]), kernel), [3, 4], keepdims=0)
    return op.finish("Reshape", sums, op.fold.Concat(leading_dims, [math.prod(kernel_shape[2:])], axis=0))


def _make_windows(graph: Any, node: Any, sizes: list[int]) -> Windows:
    return Windows(graph, node, sizes, node.get_attr_value("strides"), node.get_attr_value("dilations") or [])


def _pad_and_convert(graph: Any, node: Any, windows: Windows) -> None:
    """Convert a convolution with tf2onnx. First pad explicitly if needed. A kernel of size 1 needs no padding."""
    if windows.needs_explicit_padding:
        if max(windows.sizes) > 1:
            graph.replace_input(node, node.input[0], windows.pad(GraphBuilder(graph), node.input[0]), 0)
            graph.set_shape(node.input[0], windows.image_shape)
        node.set_attr("padding", "VALID")
    convert_with_tf2onnx(graph, node)


def max_pool_and_avg_pool(graph: Any, node: Any) -> None:
    """Convert `MaxPool` and `AvgPool` of (B, ..., C) with tf2onnx if possible, else to reductions of windows."""
    sizes, strides = (
        node.get_attr_value(name) if len(node.input) < 3 else node.inputs[index].get_tensor_value()
        for name, index in (("ksize", 1), ("strides", 2))
    )
    is_max = node.type.startswith("Max")
    dtype = graph.get_dtype(node.input[0])
    is_channels_last = not node.get_attr_value("data_format", b"").startswith(b"NC")
    windows = Windows(graph, node, sizes[1:-1] if is_channels_last else sizes[2:], strides, [])
    has_pool_kernel = dtype in CONVOLUTION_FLOATS or (is_max and dtype == TensorProto.DOUBLE)  # in onnxruntime
    pools_batch_or_channels = sizes[0] != 1 or sizes[-1 if is_channels_last else 1] != 1
    if not is_channels_last or (has_pool_kernel and not windows.needs_explicit_padding) or pools_batch_or_channels:
        convert_with_tf2onnx(graph, node)
        return
    op = NodeReplacement(graph, node)
    axes = [*range(len(windows.sizes) + 1, 2 * len(windows.sizes) + 1)]
    images = op.inputs[0]
    # TensorFlow averages only the elements within the image, so the sum is divided by the number of these elements
    if not is_max:
        ones = op.Expand(op.number(1), op.Shape(images))
        sums = [op.ReduceSum(windows.extract(op, tensor)[0], axes, keepdims=0) for tensor in (images, ones)]
        op.finish("Div", *sums)
        return
    elem_type = find_kernel_dtype("ReduceMax", dtype, WIDER_SELECTION_DTYPES) or dtype
    computation_dtype = numpy_dtype(elem_type)
    lowest = np.array(-np.inf if computation_dtype.kind == "f" else np.iinfo(computation_dtype).min, computation_dtype)
    patches, _ = windows.extract(op, op.Cast(images, to=elem_type), lowest)
    op.finish("Cast", op.ReduceMax(patches, axes, keepdims=0), to=op.dtype)


def max_pool_with_argmax(graph: Any, node: Any) -> RejectionReason:
    """Convert `MaxPoolWithArgmax` of (B, H, W, C) to `MaxPool` with tf2onnx, and cast its indices from int64."""
    windows = Windows(graph, node, node.get_attr_value("ksize")[1:-1], node.get_attr_value("strides"), [])
    if windows.needs_explicit_padding or graph.get_dtype(node.input[0]) not in CONVOLUTION_FLOATS:
        return "onnxruntime needs float32 or float16, and known image sizes if there are gaps between windows"
    indices = node.output[1]
    dtype = node.output_dtypes[1]
    if dtype != TensorProto.INT64:
        graph.set_dtype(indices, TensorProto.INT64)
        graph.insert_new_node_on_output("Cast", indices, to=dtype)
    convert_with_tf2onnx(graph, node)
    return None
