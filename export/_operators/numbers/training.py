"""Handlers for quantization-aware training (`FakeQuantWithMinMax...`) and for a loss."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, Refusal

HALF = np.float32(0.5)


def fake_quant_with_min_max(graph: Any, node: Any) -> None:
    """Convert `FakeQuantWithMinMaxArgs`, `...Vars` and `...VarsPerChannel` of (x, smallest, largest).

    Both limits are moved so that zero is a step. Where both are zero, the output is zero.
    """
    lowest = np.float32(bool(node.get_attr_value("narrow_range", 0)))
    highest = np.float32(2 ** node.get_attr_value("num_bits", 8) - 1)
    limits = [np.float32(node.get_attr_value(name, default)) for name, default in (("min", -6.0), ("max", 6.0))]
    op = NodeReplacement(graph, node)
    x, smallest, largest = op.inputs if len(op.inputs) == 3 else [op.inputs[0], *map(op.constant, limits)]
    step = op.Div(op.Sub(largest, smallest), highest - lowest)
    from_smallest = op.Sub(lowest, op.Div(smallest, step))
    zero = op.Clip(op.Floor(op.Add(from_smallest, HALF)), lowest, highest)
    low, high = (op.Mul(op.Sub(limit, zero), step) for limit in (lowest, highest))
    inverse = op.Div(highest - lowest, op.Sub(largest, smallest))
    steps = op.Mul(op.Sub(op.Max(op.Min(x, high), low), low), inverse)
    quantized = op.Sub(steps, op.Floor(op.Add(op.Mul(op.Neg(low), inverse), HALF)))
    result = op.Mul(op.Floor(op.Add(quantized, HALF)), step)
    both_zero = op.And(op.Equal(smallest, np.float32(0)), op.Equal(largest, np.float32(0)))
    op.finish("Where", both_zero, np.float32(0), result)


def sparse_softmax_cross_entropy_with_logits(graph: Any, node: Any) -> Refusal:
    """Convert `SparseSoftmaxCrossEntropyWithLogits` of logits (N, C) and classes (N,).

    The log-probability of the class is gathered: a product with a one-hot row is NaN where another logit is -inf.
    """
    if graph.find_output_consumers(node.output[1]):
        return "its gradient cannot be exported"
    op = NodeReplacement(graph, node)
    logits, classes = op.inputs
    index = op.Unsqueeze(op.Cast(classes, to=TensorProto.INT64), [1])
    log_probability = op.GatherElements(op.LogSoftmax(logits, axis=-1), index, axis=1)
    return op.finish("Neg", op.Squeeze(log_probability, [1]))
