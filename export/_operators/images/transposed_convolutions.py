"""Handler for transposed convolutions of the output size that TensorFlow passes.

An axis of `count` elements reaches `stride * (count - 1) + reach` elements, with `reach = (kernel - 1) * rate + 1`.
Padding removes `start` elements in front: half of what exceeds the output size, rounded down, for SAME, the explicit
padding, or 0. Elements past what is reached are zeros, as where the kernel is shorter than its stride.
"""

from typing import Any, NamedTuple

from onnx import TensorProto

from ..graph_builder import NodeReplacement, Operand, Refusal


class _Axis(NamedTuple):
    """A spatial axis; sizes are -1 if unknown, and `start` is None for SAME."""

    stride: int
    rate: int
    kernel_extent: int
    input_size: int
    output_size: int
    start_pad: int | None


def conv_backprop_input(graph: Any, node: Any) -> Refusal:
    """Convert `Conv2DBackpropInput` and `Conv3DBackpropInputV2` of (size, kernel, images)."""
    kernel = graph.get_shape(node.input[1])
    rank = len(kernel) - 2
    if graph.get_dtype(node.input[2]) not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        return "onnxruntime has it of floats only"
    if min(kernel[:-2]) < 0:
        return "the size of its kernel is unknown"
    first = 2 if node.get_attr_str("data_format").startswith("NC") else 1  # the first spatial axis
    axes = _read_axes(graph, node, kernel[:-2], first)
    options = {
        "strides": [axis.stride for axis in axes],
        "dilations": [axis.rate for axis in axes],
        "kernel_shape": kernel[:-2],
    }
    op = NodeReplacement(graph, node)
    size, weights, source, *bias = op.inputs  # tf2onnx has merged `BiasAdd`
    weights = op.Transpose(weights, perm=[rank + 1, rank, *range(rank)])
    if first == 1:
        source = op.Transpose(source, perm=[0, rank + 1, *range(1, rank + 1)])
    if all(axis.input_size >= 0 and axis.output_size >= 0 for axis in axes):
        result = op.ConvTranspose(source, weights, *bias, **options, **_static_pads(axes))
    else:
        padding = [axis.stride - 1 for axis in axes]
        full = op.ConvTranspose(source, weights, *bias, **options, output_padding=padding)
        lengths = [op.Cast(op.Gather(size, [first + k]), to=TensorProto.INT64) for k in range(rank)]
        result = _slice_to_size(op, full, source, lengths, axes)
    return op.finish("Transpose", result, perm=[*range(rank + 2)] if first == 2 else [0, *range(2, rank + 2), 1])


def _read_axes(graph: Any, node: Any, kernel: list[int], first: int) -> list[_Axis]:
    """Return the spatial axes, the first of which has this index in the images."""
    rank = len(kernel)
    spatial = slice(first, first + rank)
    rates = (node.get_attr_value("dilations") or [1] * (rank + 2))[spatial]
    sizes = node.output_shapes[0] or [-1] * (rank + 2)
    if node.inputs[0].is_const():
        sizes = node.inputs[0].get_tensor_value()
    starts: list[int | None] = [None if node.get_attr_str("padding") == "SAME" else 0] * rank
    if node.get_attr_str("padding") == "EXPLICIT":
        starts = node.get_attr_value("explicit_paddings")[2 * first : 2 * (first + rank) : 2]
    reaches = [(size - 1) * rate + 1 for size, rate in zip(kernel, rates, strict=True)]
    strides = node.get_attr_value("strides")[spatial]
    images = graph.get_shape(node.input[2])[spatial]
    return [_Axis(*axis) for axis in zip(strides, rates, reaches, images, sizes[spatial], starts, strict=True)]


def _static_pads(axes: list[_Axis]) -> dict[str, list[int]]:
    """Return attributes of `ConvTranspose` for constant sizes; a negative padding behind is an output padding."""
    excess = [axis.stride * (axis.input_size - 1) + axis.kernel_extent - axis.output_size for axis in axes]
    starts = [
        max(e, 0) // 2 if axis.start_pad is None else axis.start_pad for e, axis in zip(excess, axes, strict=True)
    ]
    ends = [e - start for e, start in zip(excess, starts, strict=True)]
    return {
        "pads": [*starts, *(max(end, 0) for end in ends)],
        "output_padding": [max(-end, 0) for end in ends],
    }


def _slice_to_size(op: NodeReplacement, full: str, source: str, lengths: list[str], axes: list[_Axis]) -> str:
    """Return the part of the full output, channels first, that has these lengths."""
    for index, (axis, length) in enumerate(zip(axes, lengths, strict=True), start=2):
        start: Operand = [axis.start_pad or 0]
        if axis.start_pad is None:
            count = op.Gather(op.Shape(source), [index])
            reached = op.Add(op.Mul(count, axis.stride), axis.kernel_extent - axis.stride)
            start = op.Div(op.Max(op.Sub(reached, length), 0), 2)
        full = op.Slice(full, start, op.Add(length, start), [index])
    return full
