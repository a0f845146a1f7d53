"""Handler for `SparseSoftmaxCrossEntropyWithLogits`."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from ..graph_builder import NodeReplacement


def sparse_softmax_cross_entropy_with_logits(graph: Any, node: Any) -> str | None:
    """Convert `SparseSoftmaxCrossEntropyWithLogits` of logits (N, C) and classes (N,).

    The log-probability of the class is gathered: a product with a one-hot row is NaN where another logit is -inf.
    """
    if graph.find_output_consumers(node.output[1]):
        return "its gradient cannot be exported"
    op = NodeReplacement(graph, node)
    logits, classes = op.inputs
    index = op.Unsqueeze(op.Cast(classes, to=TensorProto.INT64), [1])
    log_probability = op.GatherElements(op.LogSoftmax(logits, axis=-1), index, axis=1)
    op.finish("Neg", op.Squeeze(log_probability, [1]))
    return None
