"""What of tf2onnx takes a frozen graph, or is mended: private all of it, and pinned in pyproject.toml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import tensorflow as tf
import tf2onnx
from tf2onnx import tf_loader
from tf2onnx.onnx_opset import controlflow, nn, tensor
from tf2onnx.optimizer import back_to_back_optimizer
from tf2onnx.optimizer.transpose_optimizer import TransposeOptimizer
from tf2onnx.utils import make_name

__all__ = [
    "TransposeOptimizer",
    "back_to_back_merges",
    "converted",
    "converted_convolution",
    "converted_depthwise_convolution",
    "converted_gather",
    "converted_pooling",
    "converted_while",
    "frozen",
    "function_of",
    "make_name",
    "mended",
    "optimized",
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


def converted_gather(graph: Any, node: Any) -> None:
    """Convert `GatherV2` in place, as tf2onnx does."""
    tensor.GatherV2.version_12(graph, node)


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


def function_of(node: Any, attribute: str) -> Any:
    """Return the graph of a function that a node calls, converted by then: `body`, `cond`, a branch."""
    return tf_loader.find_function(node.get_attr_str(attribute))
