"""Error messages of the conversion: the unsupported operator, its layer, and tf2onnx's own message."""

import contextlib
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import onnx
import tensorflow as tf

from .._onnx.traversal import iter_nodes
from .._options import TF2ONNX_OPSET
from .._signature.keras_messages import shorten_message

# Advice for users: alternatives to operators that are unsupported or whose conversion failed.
ALTERNATIVES = {
    "GatherV2": "an axis that is a plain integer",
    "Cumprod": "`keras.ops.exp` of `keras.ops.cumsum` of logarithms, or a loop",
    "StridedSlice": "slices with constant steps",
    "Conv2DBackpropInput": "an upsampling and a convolution",
    "Einsum": "`keras.ops.matmul` and `keras.ops.transpose`",
    "Reshape": "a shape with at most one unknown size",
    "Conv2D": "float32 and a kernel of static size",
    "CropAndResize": "`method='bilinear'`",
    "AsString": "integers",
    "StringSplitV2": "a separator that is a plain string, and without `maxsplit`",
    "StringToHashBucket": "`tf.strings.to_hash_bucket_fast`",
    **dict.fromkeys(("RegexReplace", "StaticRegexReplace"), "a pattern without ambiguous alternatives"),
    **dict.fromkeys(("SparseCross", "SparseCrossV2"), "`tf.sparse.cross_hashed` of dense tensors"),
    **dict.fromkeys(("StringLower", "StringUpper"), "`encoding=''`"),
    **dict.fromkeys(("UnicodeDecode", "UnicodeDecodeWithOffsets", "UnicodeEncode"), "`tf.strings.unicode_split`"),
    **dict.fromkeys(("ReverseV2", "Transpose"), "axes that are plain integers"),
    **dict.fromkeys(("EagerPyFunc", "PyFunc"), "ops of TensorFlow in place of a Python function"),
    **dict.fromkeys(
        ("StatelessWhile", "While"),
        "`keras.ops.while_loop`, and `tf.tensor_scatter_nd_update` of a tensor of the final size for a `TensorArray`",
    ),
    **dict.fromkeys(("FusedBatchNormV2", "FusedBatchNormV3"), "`keras.ops.moments`"),
}


def find_named_node(message: str, graph: tf.compat.v1.GraphDef) -> list[tuple[str, str]]:
    """Return (node, op) of the node with the longest name in a message of tf2onnx, or an empty list."""
    candidates = [
        node
        for node in graph.node
        if node.op not in ("Placeholder", "Const") and re.search(rf"(?<![\w/]){re.escape(node.name)}(?![\w/])", message)
    ]
    return [(node.name, node.op) for node in sorted(candidates, key=lambda node: len(node.name))[-1:]]


def find_unknown_nodes(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Yield (node, op) for every operator that ONNX lacks."""
    for node in iter_nodes(graph):
        if node.domain == "" and not onnx.defs.has(node.op_type, TF2ONNX_OPSET):
            yield node.name, node.op_type


def format_unsupported_op(op: str, node: str, layers: Sequence[str], reason: str = "") -> str:
    """Return the message about an unsupported operator, with the reason if its handler returned one."""
    location = describe_location(node, layers)
    alternative = ALTERNATIVES.get(op, "other ops")
    explanation = f": {reason}" if reason else ""
    advice = f"Write that layer with {alternative}, or move it out of the model."
    return f"Op `{op}` of {location} has no mapping to ONNX{explanation}. {advice}"


def format_failed_conversion(
    failed_nodes: Sequence[str], graph: tf.compat.v1.GraphDef, layers: Sequence[str], error: Exception
) -> str:
    """Return the message about a failed conversion: operator, layer, tf2onnx's error, and an alternative."""
    error_text = f"{type(error).__name__}: {shorten_message(error)}"
    if not failed_nodes:
        return f"tf2onnx cannot convert the model: {error_text}"
    node_lists = [graph.node, *(function.node_def for function in graph.library.function)]
    ops = {node.name: node.op for nodes in node_lists for node in nodes}
    op = f"op `{ops[failed_nodes[0]]}` of " if failed_nodes[0] in ops else ""
    alternative = ALTERNATIVES.get(ops.get(failed_nodes[0], ""), "other ops")
    advice = f"Write that layer with {alternative}, or move it out of the model."
    return f"tf2onnx cannot convert {op}{describe_location(failed_nodes[0], layers)}: {error_text}. {advice}"


def describe_location(node: str, layers: Sequence[str]) -> str:
    """Return the layer of a node for a message, or the node if its layer is unknown."""
    layer = find_layer(node, layers)
    return f"layer `{layer}`" if layer else f"node `{node}`"


def find_layer(node: str, layers: Sequence[str]) -> str | None:
    """Return the innermost layer among the name scopes of a node, or None."""
    return next((layer for part in reversed(node.split("/")) if (layer := _match_scope(part, layers))), None)


def _match_scope(scope: str, layers: Sequence[str]) -> str | None:
    """Return the layer with the name of a scope, or None; TensorFlow appends `_1` to a repeated scope."""
    if scope in layers:
        return scope
    stem, _, count = scope.rpartition("_")
    return stem if count.isdigit() and stem in layers else None


# The logger is global: concurrent conversions would mix their messages.
_LOGGER_LOCK = threading.Lock()


class ConversionLog(NamedTuple):
    """Errors that tf2onnx logs without raising, so that the file would contain TensorFlow operators.

    Attributes:
        unsupported_ops: (node, op) for every operator without handler.
        failed_nodes: Names of nodes whose handler raised.
    """

    unsupported_ops: list[tuple[str, str]]
    failed_nodes: list[str]


@contextlib.contextmanager
def capture_log() -> Iterator[ConversionLog]:
    """Silence the logger of tf2onnx within the context, and collect its messages about operators."""
    log = ConversionLog([], [])

    class LogHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if match := re.search(r"Tensorflow op \[(.+): (\w+)\] is not supported", message):
                log.unsupported_ops.append((match[1], match[2]))
            elif match := re.match(r"Failed to convert node '([^']+)'", message):
                log.failed_nodes.append(match[1])

    with _LOGGER_LOCK:
        logger = logging.getLogger("tf2onnx")
        settings = logger.level, logger.propagate, logger.handlers
        logger.setLevel(logging.ERROR)
        logger.propagate, logger.handlers = False, [LogHandler()]
        try:
            yield log
        finally:
            logger.setLevel(settings[0])
            logger.propagate, logger.handlers = settings[1:]
