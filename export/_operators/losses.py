"""Losses of a classification, and what a connectionist temporal classification decodes to."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from .writing import Value, Writer


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


def greedy(graph: Any, node: Any) -> None:
    """`CTCGreedyDecoder` of (T, B, C) and lengths (B,): the largest of each step, without blanks and repetitions.

    As sparse labels: indices, values, shape; and the sum of the largest, negated.
    """
    merges, blank = node.get_attr_value("merge_repeated", 0), node.get_attr_value("blank_index", -1)
    (scores, lengths), outputs = node.input, node.output
    shapes, (_, _, _, kind) = node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    write = Writer(graph)
    steps = write("Unsqueeze", write("Range", 0, write("Squeeze", write("Shape", scores, end=1)), 1), [1])
    is_step = write("Less", steps, write("Cast", lengths, to=TensorProto.INT64))
    largest = write("ReduceMax", scores, [2], keepdims=0)
    zero = np.zeros((), tensor_dtype_to_np_dtype(kind))
    total = write("Neg", write("ReduceSum", write("Where", is_step, largest, zero), [0], keepdims=0))
    labels = write("Transpose", write("ArgMax", scores, axis=2, keepdims=0), perm=[1, 0])
    blanks = write("Shape", scores, start=2) if blank < 0 else [0]
    is_blank = write("Equal", labels, write("Add", blanks, [blank]))
    kept = write("And", write("Transpose", is_step, perm=[1, 0]), write("Not", is_blank))
    if merges:
        none = write("Expand", np.int64(-1), write("Concat", write("Shape", scores, start=1, end=2), [1], axis=0))
        before = write("Concat", none, write("Slice", labels, [0], [-1], [1]), axis=1)
        kept = write("And", kept, write("Not", write("Equal", labels, before)))
    counted = write("Cast", kept, to=TensorProto.INT64)
    places = write("CumSum", counted, 1, exclusive=1)
    where = write("Transpose", write("NonZero", kept), perm=[1, 0])
    column = write("Unsqueeze", write("GatherND", places, where), [1])
    longest = write("ReduceMax", write("Concat", [0], write("ReduceSum", counted, [1], keepdims=0), axis=0), keepdims=1)
    forms: list[tuple[str, list[Value], int, dict[str, Any]]] = [
        ("Concat", [write("Slice", where, [0], [1], [1]), column], TensorProto.INT64, {"axis": 1}),
        ("GatherND", [labels, where], TensorProto.INT64, {}),
        ("Concat", [write("Shape", scores, start=1, end=2), longest], TensorProto.INT64, {"axis": 0}),
        ("Unsqueeze", [total, [1]], kind, {}),
    ]
    for output, shape, (op, inputs, gives, options) in zip(outputs, shapes, forms, strict=True):
        write.named(output, op, *inputs, shape=shape, gives=gives, **options)
