"""Handlers for transposed convolutions of the output size that TensorFlow passes.

Past what is reached come zeros, as where the kernel is shorter than its stride. What is known of the sizes is written
as padding; the rest is cut when the model runs.
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from ..graph_builder import Replacement, Value


def convolve_back(graph: Any, node: Any) -> None:
    """`Conv2DBackpropInput` and `Conv3DBackpropInputV2` of (size, kernel, images)."""
    images, kernel = graph.get_shape(node.input[2]), graph.get_shape(node.input[1])
    if graph.get_dtype(node.input[2]) not in (TensorProto.FLOAT, TensorProto.FLOAT16) or min(kernel[:-2]) < 0:
        return
    rank = len(kernel) - 2
    channels_first = node.get_attr_str("data_format").startswith("NC")
    first = 2 if channels_first else 1
    here = slice(first, first + rank)
    strides = node.get_attr_value("strides")[here]
    rates = (node.get_attr_value("dilations") or [1] * (rank + 2))[here]
    reaches = [(size - 1) * rate + 1 for size, rate in zip(kernel, rates, strict=False)]
    padding, explicit = node.get_attr_str("padding"), node.get_attr_value("explicit_paddings")
    fixed = [explicit[2 * (first + axis)] if padding == "EXPLICIT" else 0 for axis in range(rank)]  # cut in front
    known = node.output_shapes[0] or [-1] * (rank + 2)
    if node.inputs[0].is_const():
        known = node.inputs[0].get_tensor_value()
    write = Replacement(graph, node)
    size, weights, source, *bias = write.inputs  # tf2onnx has put `BiasAdd` in
    weights = write("Transpose", weights, perm=[rank + 1, rank, *range(rank)])
    if not channels_first:
        source = write("Transpose", source, perm=[0, rank + 1, *range(1, rank + 1)])
    options = {"strides": strides, "dilations": rates, "kernel_shape": kernel[:-2]}
    if -1 not in [*images[here], *known[here]]:
        axes = zip(strides, images[here], reaches, known[here], strict=True)
        missing = [step * (count - 1) + reach - wanted for step, count, reach, wanted in axes]
        starts = [max(each, 0) // 2 for each in missing] if padding == "SAME" else fixed
        ends = [each - start for each, start in zip(missing, starts, strict=True)]
        options["pads"] = [*starts, *(max(end, 0) for end in ends)]
        options["output_padding"] = [max(-end, 0) for end in ends]
        found = write("ConvTranspose", source, weights, *bias, **options)
    else:
        options["output_padding"] = [step - 1 for step in strides]
        found = write("ConvTranspose", source, weights, *bias, **options)
        for axis in range(rank):
            wanted = write("Cast", write("Gather", size, [first + axis]), to=TensorProto.INT64)
            start: Value = [fixed[axis]]
            if padding == "SAME":
                count = write("Gather", write("Shape", source), [axis + 2])
                full = write("Add", write("Mul", count, strides[axis]), reaches[axis] - strides[axis])
                start = write("Div", write("Max", write("Sub", full, wanted), 0), 2)
            found = write("Slice", found, start, write("Add", wanted, start), [axis + 2])
    order = [*range(rank + 2)] if channels_first else [0, *range(2, rank + 2), 1]
    write.last("Transpose", found, perm=order)
