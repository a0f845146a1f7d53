"""What tf2onnx writes wrongly or not at all: its mappings that lose numbers are replaced, and one optimizer held back.

Each handler has tf2onnx's own form: it gets the graph, the node, its name and its arguments, and edits the graph in
place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto

from .._internals.tf2onnx_internals import back_to_back_merges, make_name

SIGN_BIT = np.int32(np.iinfo(np.int32).min)
Handler = tuple[Any, list[Any]]


def _where(graph: Any, node: Any, name: str, args: Any) -> None:
    """`tf.where` as `Where`.

    tf2onnx 1.17 writes `mask * x + (1 - mask) * y`, which turns a row into NaN as soon as one of its masked values is
    NaN or infinite. onnxruntime has no `Where` for booleans; there the choice is logic.
    """
    if graph.get_dtype(node.output[0]) != TensorProto.BOOL:
        node.type = "Where"
        return
    condition, chosen, other = node.input
    shapes, dtypes = node.output_shapes, node.output_dtypes
    graph.remove_node(name)
    first = graph.make_node("And", [condition, chosen], dtypes=[TensorProto.BOOL])
    negated = graph.make_node("Not", [condition], dtypes=[TensorProto.BOOL])
    second = graph.make_node("And", [negated.output[0], other], dtypes=[TensorProto.BOOL])
    both = [first.output[0], second.output[0]]
    graph.make_node("Or", both, outputs=node.output, shapes=shapes, dtypes=dtypes, name=name)


def _erfc(graph: Any, node: Any, name: str, args: Any) -> None:
    """`Erfc`, which the exact GELU is written with and tf2onnx 1.17 does not know, as `1 - Erf`."""
    shapes, dtypes = node.output_shapes, node.output_dtypes
    source, outputs = node.input[0], node.output
    graph.remove_node(name)
    erf = graph.make_node("Erf", [source], shapes=shapes, dtypes=dtypes)
    one = graph.make_node("CastLike", [constant(graph, np.float32(1)), source], dtypes=dtypes)
    graph.make_node("Sub", [one.output[0], erf.output[0]], outputs=outputs, shapes=shapes, dtypes=dtypes, name=name)


def _sign_bit(graph: Any, node: Any, name: str, args: Any) -> None:
    """`Bitcast` of a float to int32 where only the sign bit is read, as `keras.ops.argmax` does to order -0.0 and 0.0.

    ONNX has no bit cast before opset 26: the sign is found by comparison, that of a zero by its reciprocal. Any other
    use of `Bitcast` is left as it is, and refused as an op without mapping.
    """
    consumers = graph.find_output_consumers(node.output[0])
    if graph.get_dtype(node.input[0]) != TensorProto.FLOAT or not all(_reads_sign(each) for each in consumers):
        return
    source, outputs, shapes = node.input[0], node.output, node.output_shapes
    graph.remove_node(name)
    zero, one = constant(graph, np.float32(0)), constant(graph, np.float32(1))
    negative = graph.make_node("Less", [source, zero], dtypes=[TensorProto.BOOL], shapes=shapes)
    reciprocal = graph.make_node("Div", [one, source], dtypes=[TensorProto.FLOAT], shapes=shapes)
    from_below = graph.make_node("Less", [reciprocal.output[0], zero], dtypes=[TensorProto.BOOL], shapes=shapes)
    either = [negative.output[0], from_below.output[0]]
    sign = graph.make_node("Or", either, dtypes=[TensorProto.BOOL], shapes=shapes)
    choice = [sign.output[0], constant(graph, SIGN_BIT), constant(graph, np.int32(0))]
    graph.make_node("Where", choice, outputs=outputs, shapes=shapes, dtypes=[TensorProto.INT32], name=name)


def _reads_sign(consumer: Any) -> bool:
    values = [each.get_tensor_value(as_list=False) for each in consumer.inputs if each.is_const()]
    return consumer.type == "BitwiseAnd" and any(np.array_equal(value, SIGN_BIT) for value in values)


def constant(graph: Any, value: Any) -> str:
    return str(graph.make_const(make_name("constant"), np.asarray(value)).output[0])


HANDLERS: dict[str, Handler] = {"SelectV2": (_where, []), "Erfc": (_erfc, []), "Bitcast": (_sign_bit, [])}


@contextlib.contextmanager
def reshapes_merged_where_right() -> Iterator[None]:
    """Let tf2onnx merge two reshapes in a row only if the second does not copy sizes of its input.

    A 0 in the target of `Reshape` stands for the size of the input on that axis. One optimizer of tf2onnx 1.17 writes
    such zeros (`reshape_optimizer`), another drops the reshape before (`_optimize_reshape_reshape` in
    `back_to_back_optimizer`), and the zeros then copy sizes of something else: a `Dense` layer on a sequence of unknown
    length, split into heads, came out with a target that nothing fits. For as long as the context lasts, in this
    process, no thread but one may convert.
    """
    merges = back_to_back_merges()
    ((key, merge),) = ((key, merge) for key, merge in merges.items() if key == ("Reshape",))

    def merge_if_right(graph: Any, node: Any, consumers: Any) -> Any:
        targets = [consumer.inputs[1] for consumer in consumers if consumer.type == "Reshape"]
        right = all(target.is_const() and 0 not in target.get_tensor_value() for target in targets)
        return merge(graph, node, consumers) if right else []

    merges[key] = merge_if_right
    try:
        yield
    finally:
        merges[key] = merge
