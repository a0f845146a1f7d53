"""Private tf2onnx functions that convert a frozen graph; importing this module applies `tf2onnx_patches.py`."""

from typing import Any

import onnx
import tensorflow as tf
from tf2onnx import convert, tf_loader, utils
from tf2onnx.onnx_opset import controlflow
from tf2onnx.utils import make_name

from .tf2onnx_patches import FIRST_NODE_NUMBER, convert_with_tf2onnx, find_subgraph, patched_tf2onnx

__all__ = ["convert_with_tf2onnx", "find_subgraph", "make_name", "patched_tf2onnx"]  # re-exported

# Numbers of names reserved per conversion: each conversion starts at a multiple, so that two conversions of a graph
# differ by a constant in all numbers.
_NUMBERS_PER_MODEL = 10**6


def replace_resource_gathers(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Replace `ResourceGather`, which freezing leaves in functions, by `Gather` (tensorflow issue 51488)."""
    return tf_loader.fix_freezing_errors_part2(graph)


def optimize_tf_graph(graph: tf.compat.v1.GraphDef, inputs: list[str], outputs: list[str]) -> tf.compat.v1.GraphDef:
    """Return a frozen graph after TensorFlow's optimizers, as tf2onnx configures them."""
    with tf.Graph().as_default() as imported, tf.compat.v1.Session(graph=imported):
        tf.import_graph_def(graph, name="")
        return tf_loader.tf_optimize(inputs, outputs, graph)


def convert_graph(graph: tf.compat.v1.GraphDef, **options: Any) -> onnx.ModelProto:
    """Return the ONNX model of a frozen graph; two conversions of a graph differ only in numbers in names."""
    # tf2onnx numbers nodes with one counter per process, sorts nodes by name, and merges the second of two equal nodes
    # into the first. Numbers of equal length keep their order, whereas `9` would sort after `10`.
    utils.INTERNAL_NAME = max(FIRST_NODE_NUMBER, -(-utils.INTERNAL_NAME // _NUMBERS_PER_MODEL) * _NUMBERS_PER_MODEL)
    model, _ = convert._convert_common(graph, **options)
    return model


def convert_while(graph: Any, node: Any) -> None:
    """Convert a loop in place with tf2onnx's handler: a node `Loop`, named like the loop with the suffix `_loop`."""
    controlflow.While.version_7(graph, node)
