"""Two optimizers of tf2onnx are held to what they may do: that of two reshapes in a row, and that of transposes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .._internals.tf2onnx_internals import TransposeOptimizer, back_to_back_merges


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


@contextlib.contextmanager
def transposes_moved_where_right() -> Iterator[None]:
    """Let tf2onnx move a transpose past a square, x times x, only with the shape of what is then squared.

    It keeps the shape of before (`_mul_handler` in `transpose_optimizer`), and writes a transpose as a reshape to that
    where all sizes but one are 1: a convolution whose output is 1 by 1, normalized, came out with another shape. Past a
    `Shape` of some axes (`_shape_handler`), of which it makes one of all, none is moved. For as long as the context
    lasts, in this process, no thread but one may convert.
    """
    past_product, past_shape = TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler

    def with_shape(self: Any, transpose: Any, node: Any) -> Any:
        is_square, shape = len({*node.input}) == 1, self._g.get_shape(node.output[0])
        done = past_product(self, transpose, node)
        if done and is_square and shape:
            order = transpose.get_attr_value("perm")
            self._g.set_shape(node.output[0], [shape[order.index(axis)] for axis in range(len(order))])
            self._g.set_shape(transpose.output[0], shape)
        return done

    def if_whole(self: Any, transpose: Any, node: Any) -> Any:
        return not {"start", "end"} & {*node.attr} and past_shape(self, transpose, node)

    TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler = with_shape, if_whole
    try:
        yield
    finally:
        TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler = past_product, past_shape
