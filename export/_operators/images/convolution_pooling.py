"""Handlers for convolutions, pooling and patch extraction where tf2onnx fails."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import Replacement, Writer
from .image_windows import Windows

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16}
REDUCED = {TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64}  # by onnxruntime's `ReduceMax`


def extract(graph: Any, node: Any) -> None:
    """`ExtractImagePatches` and `ExtractVolumePatches`: of each window all its numbers, channels last."""
    sizes, strides = node.get_attr_value("ksizes")[1:-1], node.get_attr_value("strides")
    windows = Windows(graph, node, sizes, strides, node.get_attr_value("rates") or [])
    write = Replacement(graph, node)
    (images,) = write.inputs
    found, places = windows.cut(write, images)
    channels = write("Gather", write("Shape", images), [-1])
    write.last("Reshape", found, write("Concat", places, write("Mul", channels, math.prod(sizes)), axis=0))


def convolve(graph: Any, node: Any) -> None:
    """`Conv2D` and `Conv3D` as tf2onnx has them, but for groups; of other numbers windows, times the kernel."""
    kernel, images = graph.get_shape(node.input[1]), graph.get_shape(node.input[0])
    channels = images[1 if node.get_attr_str("data_format").startswith("NC") else -1]
    if node.get_attr_str("padding") == "SAME" and -1 in kernel[:-2]:
        return  # it hangs on the kernel's size how much lies outside
    if graph.get_dtype(node.input[0]) in FLOATS:
        windows = _windows(graph, node, kernel[:-2])
        if windows.are_padded_wrongly:
            _pad_first(graph, node, windows)
        convert_with_tf2onnx(graph, node)
        if channels > 0 and kernel[-2] > 0:
            node.set_attr("group", channels // kernel[-2])
    elif -1 not in kernel and channels == kernel[-2] and images[-1] == channels:
        windows = _windows(graph, node, kernel[:-2])
        write = Replacement(graph, node)
        source, weights, *bias = write.inputs  # tf2onnx has put `BiasAdd` in
        count = math.prod(kernel[:-1])
        cut, places = windows.cut(write, source)
        rows = write("Reshape", cut, write.computed("Concat", places, [count], axis=0))
        found = write("MatMul", rows, write("Reshape", weights, [count, kernel[-1]]))
        write.last("Add", found, *bias) if bias else write.last("Identity", found)


def convolve_depthwise(graph: Any, node: Any) -> None:
    """`DepthwiseConv2dNative` as tf2onnx has it; of other numbers sums over windows, times the kernel."""
    kernel = graph.get_shape(node.input[1])
    windows = _windows(graph, node, kernel[:2])
    if graph.get_dtype(node.input[0]) in FLOATS:
        if windows.are_padded_wrongly:
            _pad_first(graph, node, windows)
        convert_with_tf2onnx(graph, node)
    elif -1 not in kernel and windows.first == 1:
        write = Replacement(graph, node)
        images, weights = write.inputs
        cut, places = windows.cut(write, images)
        found = write("ReduceSum", write("Mul", write("Unsqueeze", cut, [-1]), weights), [3, 4], keepdims=0)
        write.last("Reshape", found, write.computed("Concat", places, [math.prod(kernel[2:])], axis=0))


def _windows(graph: Any, node: Any, sizes: list[int]) -> Windows:
    return Windows(graph, node, sizes, node.get_attr_value("strides"), node.get_attr_value("dilations") or [])


def _pad_first(graph: Any, node: Any, windows: Windows) -> None:
    """Let a convolution read images that are padded, and pad nothing itself; a kernel of 1 needs nothing around."""
    if max(windows.sizes) > 1:
        write = Writer(graph)
        graph.replace_input(node, node.input[0], windows.padded(write, node.input[0]), 0)
        graph.set_shape(node.input[0], windows.images)
    node.set_attr("padding", "VALID")


def pool(graph: Any, node: Any) -> None:
    """`MaxPool`, `AvgPool` and their kin: as tf2onnx has them, for floats whose windows cover the images."""
    sizes, strides = (
        node.get_attr_value(name) if len(node.input) < 3 else node.inputs[place].get_tensor_value()
        for name, place in (("ksize", 1), ("strides", 2))
    )
    is_max, kind = node.type.startswith("Max"), graph.get_dtype(node.input[0])
    last = not node.get_attr_value("data_format", b"").startswith(b"NC")
    windows = Windows(graph, node, sizes[1:-1] if last else sizes[2:], strides, [])
    runs = kind in FLOATS or (is_max and kind == TensorProto.DOUBLE)
    if not last or (runs and not windows.are_padded_wrongly) or sizes[0] != 1 or sizes[-1 if last else 1] != 1:
        convert_with_tf2onnx(graph, node)
        return
    write = Replacement(graph, node)
    axes = [*range(len(windows.sizes) + 1, 2 * len(windows.sizes) + 1)]
    images = write.inputs[0]
    if not is_max:
        ones = write("Expand", tensor_dtype_to_np_dtype(kind).type(1), write("Shape", images))
        sums = [write("ReduceSum", windows.cut(write, each)[0], axes, keepdims=0) for each in (images, ones)]
        write.last("Div", *sums)
        return
    wide = kind if kind in FLOATS | REDUCED else TensorProto.INT32
    number = tensor_dtype_to_np_dtype(wide)
    lowest = number.type(-np.inf) if number.kind == "f" else number.type(np.iinfo(number).min)
    cut, _ = windows.cut(write, write("Cast", images, to=wide), lowest)
    write.last("Cast", write("ReduceMax", cut, axes, keepdims=0), to=write.dtype)


def pool_with_places(graph: Any, node: Any) -> None:
    """`MaxPoolWithArgmax` as tf2onnx has it, whose places are int64, for floats whose windows cover the images."""
    windows = Windows(graph, node, node.get_attr_value("ksize")[1:-1], node.get_attr_value("strides"), [])
    if windows.are_padded_wrongly or graph.get_dtype(node.input[0]) not in FLOATS:
        return
    places, dtype = node.output[1], node.output_dtypes[1]
    if dtype != TensorProto.INT64:
        graph.set_dtype(places, TensorProto.INT64)
        graph.insert_new_node_on_output("Cast", places, to=dtype)
    convert_with_tf2onnx(graph, node)
