"""Errors of the conversion: unsupported operators, the layers they belong to, and tf2onnx's messages."""

import contextlib
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import onnx
import tensorflow as tf

from .._onnx.traversal import all_nodes
from .._options import TRACED_OPSET
from .._signature.keras_messages import first_line

# What to write instead of an op that has no form, or could not be converted.
OTHERWISE = {
    "GatherV2": "an axis that is a plain integer",
    "Cumprod": "`keras.ops.exp` of `keras.ops.cumsum` of logarithms, or a loop",
    "StridedSlice": "slices whose steps are known",
    "Conv2DBackpropInput": "an upsampling and a convolution",
    "Einsum": "`keras.ops.matmul` and `keras.ops.transpose`",
    "Reshape": "a shape of which one size at most is unknown",
    "Conv2D": "float32 and a kernel whose size is known",
    "CropAndResize": "`method='bilinear'`",
    "AsString": "whole numbers",
    "StringSplitV2": "a separator that is a plain string, and without `maxsplit`",
    "StringToHashBucket": "`tf.strings.to_hash_bucket_fast`",
    **dict.fromkeys(("RegexReplace", "StaticRegexReplace"), "patterns that match in one way only"),
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


def named_in(message: str, graph: tf.compat.v1.GraphDef) -> list[tuple[str, str]]:
    """Return (node, op) of the node that a message of tf2onnx names, if it names one."""
    named = [
        node
        for node in graph.node
        if node.op not in ("Placeholder", "Const") and re.search(rf"(?<![\w/]){re.escape(node.name)}(?![\w/])", message)
    ]
    return [(node.name, node.op) for node in sorted(named, key=lambda node: len(node.name))[-1:]]


def unknown_nodes(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Yield (node, op) for every op that ONNX does not know."""
    for node in all_nodes(graph):
        if node.domain == "" and not onnx.defs.has(node.op_type, TRACED_OPSET):
            yield node.name, node.op_type


def no_mapping(op: str, node: str, layers: Sequence[str], reason: str = "") -> str:
    """Return the message for an op that cannot be converted, with the reason if its handler returned one."""
    where = place(node, layers)
    what = OTHERWISE.get(op, "other ops")
    why = f": {reason}" if reason else ""
    advice = f"Write that layer with {what}, or move it out of the model."
    return f"Op `{op}` of {where} has no mapping to ONNX{why}. {advice}"


def not_converted(failed: Sequence[str], graph: tf.compat.v1.GraphDef, layers: Sequence[str], error: Exception) -> str:
    """Say which op was being converted, what tf2onnx said, and what to do."""
    said = f"{type(error).__name__}: {first_line(error)}"
    if not failed:
        return f"tf2onnx cannot convert the model: {said}"
    ops = {node.name: node.op for each in (graph.node, *(f.node_def for f in graph.library.function)) for node in each}
    op = f"op `{ops[failed[0]]}` of " if failed[0] in ops else ""
    what = OTHERWISE.get(ops.get(failed[0], ""), "other ops")
    return (
        f"tf2onnx cannot convert {op}{place(failed[0], layers)}: {said}. Write that layer with {what}, or move it out "
        "of the model."
    )


def place(node: str, layers: Sequence[str]) -> str:
    """Return the innermost layer that a node's name scopes name, for a message."""
    layer = layer_of(node, layers)
    return f"layer `{layer}`" if layer else f"node `{node}`"


def layer_of(node: str, layers: Sequence[str]) -> str | None:
    """Return the innermost layer that a node's name scopes name, if they name one."""
    return next((layer for part in reversed(node.split("/")) if (layer := _layer(part, layers))), None)


def _layer(scope: str, layers: Sequence[str]) -> str | None:
    """Return the layer a name scope stands for; TensorFlow appends `_1` to a scope it has seen before."""
    if scope in layers:
        return scope
    stem, _, count = scope.rpartition("_")
    return stem if count.isdigit() and stem in layers else None


_ONE_AT_A_TIME = threading.Lock()  # the logger belongs to the process


class Heard(NamedTuple):
    """What tf2onnx only logs: it writes an op that it cannot map into the file under its TensorFlow name, and goes on.

    Attributes:
        unmapped: (node, op) for every op that it cannot map.
        failed: The nodes that it tried to convert in vain.
    """

    unmapped: list[tuple[str, str]]
    failed: list[str]


@contextlib.contextmanager
def listening() -> Iterator[Heard]:
    """Silence tf2onnx while it works, and collect what it says of ops."""
    heard = Heard([], [])

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = record.getMessage()
            if found := re.search(r"Tensorflow op \[(.+): (\w+)\] is not supported", said):
                heard.unmapped.append((found[1], found[2]))
            elif found := re.match(r"Failed to convert node '([^']+)'", said):
                heard.failed.append(found[1])

    with _ONE_AT_A_TIME:
        logger = logging.getLogger("tf2onnx")
        before = logger.level, logger.propagate, logger.handlers
        logger.setLevel(logging.ERROR)
        logger.propagate, logger.handlers = False, [Listener()]
        try:
            yield heard
        finally:
            logger.setLevel(before[0])
            logger.propagate, logger.handlers = before[1:]
