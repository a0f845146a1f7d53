"""Handler for `SparseSoftmaxCrossEntropyWithLogits`."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from ..graph_builder import Writer


def of_class(graph: Any, node: Any) -> None:
    """`SparseSoftmaxCrossEntropyWithLogits` of logits (N, C) and classes (N,); its gradient has no form.

    The number itself is taken: a product with a row of zeros and a one is NaN where another logit is -inf.
    """
    if graph.find_output_consumers(node.output[1]):
        return
    loss, dtype, shape = node.output[0], node.output_dtypes[0], node.output_shapes[0]
    logits, classes = node.input
    graph.remove_node(node.name)
    write = Writer(graph)
    index = write("Unsqueeze", write("Cast", classes, to=TensorProto.INT64), [1])
    found = write("GatherElements", write("LogSoftmax", logits, axis=-1), index, axis=1)
    write.named(loss, "Neg", write("Squeeze", found, [1]), shape=shape, gives=dtype)
