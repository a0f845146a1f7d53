"""Handlers for quantization-aware training (`FakeQuantWithMinMax...`) and for cross-entropy."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, RejectionReason

HALF = np.float32(0.5)


def fake_quant_with_min_max(graph: Any, node: Any) -> None:
    """Convert `FakeQuantWithMinMax...` of (x, min, max), shapes (..., C) and () or (C,), to rounding by `Floor`."""
    # x is clipped to the nudged limits, which are moved so that zero is a quantized value, and rounded to a multiple of
    # the scale (max - min) / (2^bits - 1), halves up. tf2onnx quantizes to 8 bits only, and rounds halves to even.
    first_step = np.float32(bool(node.get_attr_value("narrow_range", 0)))
    last_step = np.float32(2 ** node.get_attr_value("num_bits", 8) - 1)
    limits = [np.float32(node.get_attr_value(name, default)) for name, default in (("min", -6.0), ("max", 6.0))]
    op = NodeReplacement(graph, node)
    x, minimum, maximum = op.inputs if len(op.inputs) == 3 else [op.inputs[0], *map(op.constant, limits)]
    scale = op.Div(op.Sub(maximum, minimum), last_step - first_step)
    unrounded_zero = op.Sub(first_step, op.Div(minimum, scale))
    zero_point = op.Clip(op.Floor(op.Add(unrounded_zero, HALF)), first_step, last_step)
    nudged_min, nudged_max = (op.Mul(op.Sub(limit, zero_point), scale) for limit in (first_step, last_step))
    inverse_scale = op.Div(last_step - first_step, op.Sub(maximum, minimum))
    steps = op.Mul(op.Sub(op.Max(op.Min(x, nudged_max), nudged_min), nudged_min), inverse_scale)
    quantized = op.Sub(steps, op.Floor(op.Add(op.Mul(op.Neg(nudged_min), inverse_scale), HALF)))
    result = op.Mul(op.Floor(op.Add(quantized, HALF)), scale)
    both_zero = op.And(op.Equal(minimum, np.float32(0)), op.Equal(maximum, np.float32(0)))
    op.finish("Where", both_zero, np.float32(0), result)


def sparse_softmax_cross_entropy_with_logits(graph: Any, node: Any) -> RejectionReason:
    """Convert `SparseSoftmaxCrossEntropyWithLogits` of logits (N, C) and classes (N,) to `LogSoftmax`, gathered."""
    # tf2onnx multiplies by a one-hot row, which is NaN if the logit of another class is -inf
    if graph.find_output_consumers(node.output[1]):
        return "only the loss can be exported, not its gradient"
    op = NodeReplacement(graph, node)
    logits, classes = op.inputs
    index = op.Unsqueeze(op.Cast(classes, to=TensorProto.INT64), [1])
    log_probability = op.GatherElements(op.LogSoftmax(logits, axis=-1), index, axis=1)
    return op.finish("Neg", op.Squeeze(log_probability, [1]))
