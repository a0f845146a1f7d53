"""What of tf2onnx takes a frozen graph, or is mended: private all of it, and pinned in pyproject.toml."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import tensorflow as tf
import tf2onnx
from tf2onnx import tf_loader
from tf2onnx.onnx_opset import controlflow, nn
from tf2onnx.optimizer import back_to_back_optimizer
from tf2onnx.optimizer.transpose_optimizer import TransposeOptimizer
from tf2onnx.utils import make_name

__all__ = [
    "back_to_back_merges",
    "converted",
    "converted_convolution",
    "converted_depthwise_convolution",
    "converted_pooling",
    "converted_space",
    "converted_while",
    "frozen",
    "function_of",
    "make_name",
    "mended",
    "optimized",
    "transposes_moved_where_right",
]


def frozen(function: Any, inputs: list[str], outputs: list[str]) -> tf.compat.v1.GraphDef:
    """Return the graph of a concrete function as tf2onnx freezes and optimizes it, all calls inlined."""
    return tf_loader.from_function(function, inputs, outputs)


def mended(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Return a frozen graph with what freezing forgets within functions, see tensorflow/tensorflow issue 51488."""
    return tf_loader.fix_freezing_errors_part2(graph)


def optimized(graph: tf.compat.v1.GraphDef, inputs: list[str], outputs: list[str]) -> tf.compat.v1.GraphDef:
    """Return a frozen graph after the optimizers that tf2onnx runs on it."""
    with tf.Graph().as_default() as imported, tf.compat.v1.Session(graph=imported):
        tf.import_graph_def(graph, name="")
        return tf_loader.tf_optimize(inputs, outputs, graph)


def converted(graph: tf.compat.v1.GraphDef, **options: Any) -> onnx.ModelProto:
    """Return the ONNX model of a frozen graph."""
    model, _ = tf2onnx.convert._convert_common(graph, **options)
    return model


def back_to_back_merges() -> dict[tuple[str, ...], Callable[..., list[Any]]]:
    """Return tf2onnx's own table of what merges two operators of a kind in a row: it may be edited."""
    merges: dict[tuple[str, ...], Callable[..., list[Any]]] = back_to_back_optimizer._func_map
    return merges


def converted_while(graph: Any, node: Any) -> None:
    """Convert a loop in place, as tf2onnx does: a node `Loop`, whose name is that of the loop and `_loop`."""
    controlflow.While.version_7(graph, node)


def converted_convolution(graph: Any, node: Any) -> None:
    """Convert a convolution in place, as tf2onnx does."""
    nn.ConvOp.version_13(graph, node)


def converted_depthwise_convolution(graph: Any, node: Any) -> None:
    """Convert a depthwise convolution in place, as tf2onnx does."""
    nn.DepthwiseConv2d.version_1(graph, node)


def converted_pooling(graph: Any, node: Any) -> None:
    """Convert pooling in place, as tf2onnx does."""
    kind = node.type
    node.type = "MaxPool" if kind.startswith("Max") else "AveragePool"
    nn.PoolOp.version_11(graph, node, tf_op=kind)


def converted_space(graph: Any, node: Any) -> None:
    """Convert `DepthToSpace` or `SpaceToDepth` in place, as tf2onnx does."""
    getattr(nn, node.type).version_1(graph, node)


def function_of(node: Any, attribute: str) -> Any:
    """Return the graph of a function that a node calls, converted by then: `body`, `cond`, a branch."""
    return tf_loader.find_function(node.get_attr_str(attribute))


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
