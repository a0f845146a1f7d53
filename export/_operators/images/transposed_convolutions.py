"""Handler for transposed convolutions of the output size that TensorFlow passes.

An axis of `count` elements has a full output of `stride * (count - 1) + extent` elements, with
`extent = (kernel - 1) * rate + 1`. Padding removes `start_pad` elements in front: for SAME, half of the elements that
exceed the output size, rounded down; else the explicit padding, or 0. If the output is longer, zeros follow.
"""

from typing import Any, NamedTuple

from onnx import TensorProto

from ..graph_builder import NodeReplacement, Operand, RejectionReason


class _Axis(NamedTuple):
    """A spatial axis; sizes are -1 if unknown, and `start_pad` is None for SAME."""

    stride: int
    rate: int
    kernel_extent: int
    input_size: int
    output_size: int
    start_pad: int | None


def conv_backprop_input(graph: Any, node: Any) -> RejectionReason:
    """Convert `Conv2DBackpropInput` and `Conv3DBackpropInputV2` of (size, kernel, images) to `ConvTranspose`."""
    # Kernels are (sizes ..., output channels, C), images (B, ..., C) or (B, C, ...). tf2onnx pads by a negative number
    # if a kernel is shorter than its stride
    kernel = graph.get_shape(node.input[1])
    rank = len(kernel) - 2
    if graph.get_dtype(node.input[2]) not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        return "onnxruntime supports float32 and float16 only"
    if min(kernel[:-2]) < 0:
        return "its kernel size is unknown"
    first_axis = 2 if node.get_attr_str("data_format").startswith("NC") else 1
    axes = _read_axes(graph, node, kernel[:-2], first_axis)
    options = {
        "strides": [axis.stride for axis in axes],
        "dilations": [axis.rate for axis in axes],
        "kernel_shape": kernel[:-2],
    }
    op = NodeReplacement(graph, node)
    # tf2onnx has already merged `BiasAdd` into the node
    size, weights, source, *bias = op.inputs
    weights = op.Transpose(weights, perm=[rank + 1, rank, *range(rank)])
    if first_axis == 1:
        source = op.Transpose(source, perm=[0, rank + 1, *range(1, rank + 1)])
    if all(axis.input_size >= 0 and axis.output_size >= 0 for axis in axes):
        result = op.ConvTranspose(source, weights, *bias, **options, **_static_pads(axes))
    else:
        # At unknown sizes: the full output, with as many zeros as any output size needs, then a slice
        padding = [axis.stride - 1 for axis in axes]
        full_output = op.ConvTranspose(source, weights, *bias, **options, output_padding=padding)
        lengths = [op.Cast(op.Gather(size, [first_axis + k]), to=TensorProto.INT64) for k in range(rank)]
        result = _slice_to_size(op, full_output, source, lengths, axes)
    return op.finish("Transpose", result, perm=[*range(rank + 2)] if first_axis == 2 else [0, *range(2, rank + 2), 1])


def _read_axes(graph: Any, node: Any, kernel: list[int], first_axis: int) -> list[_Axis]:
    """Return the spatial axes, which begin with `first_axis` of the images."""
    rank = len(kernel)
    spatial = slice(first_axis, first_axis + rank)
    rates = (node.get_attr_value("dilations") or [1] * (rank + 2))[spatial]
    sizes = node.output_shapes[0] or [-1] * (rank + 2)
    if node.inputs[0].is_const():
        sizes = node.inputs[0].get_tensor_value()
    start_pads: list[int | None] = [None if node.get_attr_str("padding") == "SAME" else 0] * rank
    if node.get_attr_str("padding") == "EXPLICIT":
        start_pads = node.get_attr_value("explicit_paddings")[2 * first_axis : 2 * (first_axis + rank) : 2]
    extents = [(size - 1) * rate + 1 for size, rate in zip(kernel, rates, strict=True)]
    strides = node.get_attr_value("strides")[spatial]
    images = graph.get_shape(node.input[2])[spatial]
    return [_Axis(*axis) for axis in zip(strides, rates, extents, images, sizes[spatial], start_pads, strict=True)]


def _static_pads(axes: list[_Axis]) -> dict[str, list[int]]:
    """Return the attributes `pads` and `output_padding` of `ConvTranspose` for constant sizes."""
    # ONNX has no negative padding: where the end needs one, `output_padding` appends zeros
    excess = [axis.stride * (axis.input_size - 1) + axis.kernel_extent - axis.output_size for axis in axes]
    halves = [max(count, 0) // 2 for count in excess]
    starts = [half if axis.start_pad is None else axis.start_pad for half, axis in zip(halves, axes, strict=True)]
    ends = [count - start for count, start in zip(excess, starts, strict=True)]
    return {
        "pads": [*starts, *(max(end, 0) for end in ends)],
        "output_padding": [max(-end, 0) for end in ends],
    }


def _slice_to_size(op: NodeReplacement, output: str, source: str, lengths: list[str], axes: list[_Axis]) -> str:
    """Slice the spatial axes of the full output, (B, C, ...), to lengths of shape (1,)."""
    for index, (axis, length) in enumerate(zip(axes, lengths, strict=True), start=2):
        start: Operand = [axis.start_pad or 0]
        if axis.start_pad is None:
            count = op.Gather(op.Shape(source), [index])
            full_length = op.Add(op.Mul(count, axis.stride), axis.kernel_extent - axis.stride)
            start = op.Div(op.Max(op.Sub(full_length, length), 0), 2)
        output = op.Slice(output, start, op.Add(length, start), [index])
    return output
