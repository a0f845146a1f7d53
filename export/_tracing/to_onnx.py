"""Turn a traced function into an ONNX model with tf2onnx, or say by name what cannot be."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import onnx
import tensorflow as tf

from .._errors import UnsupportedModelError
from .._graphs.boolean_eyes import cast_boolean_eyes
from .._graphs.counted_loops import drop_conditions
from .._graphs.folding import fold_in_bodies, folded
from .._graphs.loop_state import capture_unchanged
from .._graphs.names import rename
from .._graphs.order import in_order, put_in_order
from .._graphs.simplify import simplify
from .._graphs.traced import DOMAIN, Traced
from .._graphs.walk import all_nodes
from .._internals import tf2onnx_internals
from .._model.keras_messages import first_line
from .._operators import table
from .._operators.complex_parts import parts_apart
from .._options import TRACED_OPSET
from .attention_calls import Call
from .freeze import call_handlers, check_calls, frozen
from .lookups import lookup_handlers, tables_with_shapes

# What to write instead of an op that has no form, or could not be converted.
OTHERWISE = {
    "GatherV2": "an axis that is a plain integer",
    "Cumprod": "`keras.ops.exp` of `keras.ops.cumsum` of logarithms, or a loop",
    "StridedSlice": "slices whose steps are known",
    "Conv2DBackpropInput": "an upsampling and a convolution",
    "Einsum": "`keras.ops.matmul` and `keras.ops.transpose`",
    "Reshape": "a shape of which one size at most is unknown",
    "Conv2D": "a kernel whose size is known",
    "CropAndResize": "`method='bilinear'`",
    "While": "`keras.ops.fori_loop` or `keras.ops.while_loop`",
    "AsString": "whole numbers",
    "StringSplitV2": "a separator that is a plain string, and without `maxsplit`",
    "StringToHashBucket": "`tf.strings.to_hash_bucket_fast`",
    **dict.fromkeys(("RegexReplace", "StaticRegexReplace"), "patterns that match in one way only"),
    **dict.fromkeys(("SparseCross", "SparseCrossV2"), "`tf.sparse.cross_hashed` of dense tensors"),
    **dict.fromkeys(("StringLower", "StringUpper"), "`encoding=''`"),
    **dict.fromkeys(("UnicodeDecode", "UnicodeDecodeWithOffsets", "UnicodeEncode"), "`tf.strings.unicode_split`"),
    **dict.fromkeys(("ReverseV2", "Transpose"), "axes that are plain integers"),
    **dict.fromkeys(("EagerPyFunc", "PyFunc"), "ops of TensorFlow in place of a Python function"),
    **dict.fromkeys(("FusedBatchNormV2", "FusedBatchNormV3"), "`keras.ops.moments`"),
}


NOT_DENSE = {"ragged": (tf.RaggedTensor, tf.RaggedTensorSpec), "sparse": (tf.SparseTensor, tf.SparseTensorSpec)}


def trace(function: Any, layers: Sequence[str], calls: Sequence[Call] = ()) -> Traced:
    """Return the ONNX model (opset 18) of a concrete function.

    Args:
        function: Takes tensors by name and returns a dict; these are the names in ONNX.
        layers: Names of the model's layers, for messages.
        calls: What was traced as named functions. Each becomes a node of the domain `alt.keras_attn`, without a body.

    Raises:
        UnsupportedModelError: An op has no mapping to ONNX; the message names it and the layer it comes from.
        ExportError: A named function did not come through as one node with all its inputs.
    """
    for name, spec in function.structured_outputs.items():
        for kind, kinds in NOT_DENSE.items():
            if isinstance(spec, kinds):
                raise UnsupportedModelError(
                    f"Output `{name}` is {kind}; only dense tensors can be exported. Leave `{kind}=True` out."
                )
    captured = {tensor.name for tensor in function.graph.internal_captures}  # variables, and constants of layers
    inputs = [tensor.name for tensor in function.inputs if tensor.name not in captured]
    outputs = [tensor.name for tensor in function.outputs]
    positional, by_name = function.structured_input_signature
    written = {name.lower(): name for names in (*positional, by_name) for name in names}
    nodes = {name: name.partition(":")[0] for name in inputs}
    renames = {name: written.get(node, node) for name, node in nodes.items()}  # TensorFlow calls the node of `X` `x`
    renames |= dict(zip(outputs, sorted(function.structured_outputs), strict=True))  # TensorFlow flattens dicts by key
    _refuse_state(function, layers)
    with _listening() as heard, tf2onnx_internals.patched_tf2onnx():
        graph = tf.compat.v1.GraphDef()
        try:
            found = frozen(function, inputs, outputs, keep_calls=bool(calls))
            graph = found.graph
            tables_with_shapes(graph)
            renames |= {f"{name}:0": name for name in found.weights}
            handlers = table.handlers() | lookup_handlers(function) | (call_handlers(graph, calls) if calls else {})
            model = tf2onnx_internals.converted(
                graph,
                name="keras-attn",
                opset=TRACED_OPSET,
                input_names=[*inputs, *(f"{name}:0" for name in found.weights)],
                output_names=outputs,
                tensors_to_rename=renames,
                custom_op_handlers=handlers,
                custom_rewriter=[parts_apart],
                extra_opset=[onnx.helper.make_opsetid(DOMAIN, 1)],
            )
        except UnsupportedModelError:
            raise
        except Exception as error:
            # tf2onnx raises whatever its handlers meet: AssertionError, ValueError, RuntimeError, KeyError
            for node, op in [*heard.unmapped, *([] if heard.failed else _named_in(str(error), graph))]:
                raise UnsupportedModelError(_no_mapping(op, node, layers)) from error
            raise UnsupportedModelError(_not_converted(heard.failed, graph, layers, error)) from error
    for node, op in [*heard.unmapped, *_unknown_nodes(model.graph)]:
        raise UnsupportedModelError(_no_mapping(op, node, layers))
    check_calls(model.graph, calls, found.needed)
    shapes = {name: _shape(spec.shape, name, model) for name, spec in function.structured_outputs.items()}
    cast_boolean_eyes(model.graph)
    capture_unchanged(model.graph)
    drop_conditions(model.graph)
    fold_in_bodies(model.graph)
    weights = folded(model.graph, found.weights)
    simplify(model)
    put_in_order(model.graph)
    renamed = rename(model.graph, layers, weights, [each.signature.name for each in graph.library.function])
    weights = in_order({renamed.get(name, name): array for name, array in weights.items()}, model.graph)
    return Traced(model, shapes, weights, found.unfolded)


def _shape(shape: tf.TensorShape, output: str, model: onnx.ModelProto) -> tuple[int | None, ...]:
    """Return the static shape of an output; where TensorFlow knows no rank, what the model says of it."""
    if shape.rank is not None:
        return tuple(shape)
    (found,) = (each for each in model.graph.output if each.name == output)
    return tuple(axis.dim_value or None for axis in found.type.tensor_type.shape.dim)


def _refuse_state(function: Any, layers: Sequence[str]) -> None:
    """Refuse a layer that changes a variable of TensorFlow when it is called: freezing would drop the change.

    What a layer assigns to variables of Keras is no part of the graph: see `discarded_updates`.
    """
    graph = function.graph.as_graph_def()
    for node in (*graph.node, *(node for called in graph.library.function for node in called.node_def)):
        if node.op.startswith("Assign") and node.op.endswith("VariableOp"):
            raise UnsupportedModelError(
                f"Op `{node.op}` of {_place(node.name, layers)} changes a variable when the model is called; a file "
                "would freeze the value it has now. Pass the state as an input and an output."
            )


def _named_in(message: str, graph: tf.compat.v1.GraphDef) -> list[tuple[str, str]]:
    """Return (node, op) of the node that a message of tf2onnx names, if it names one."""
    named = [
        node
        for node in graph.node
        if node.op not in ("Placeholder", "Const") and re.search(rf"(?<![\w/]){re.escape(node.name)}(?![\w/])", message)
    ]
    return [(node.name, node.op) for node in sorted(named, key=lambda node: len(node.name))[-1:]]


def _unknown_nodes(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Yield (node, op) for every op that ONNX does not know."""
    for node in all_nodes(graph):
        if node.domain == "" and not onnx.defs.has(node.op_type, TRACED_OPSET):
            yield node.name, node.op_type


def _no_mapping(op: str, node: str, layers: Sequence[str]) -> str:
    where = _place(node, layers)
    what = OTHERWISE.get(op, "other ops")
    return f"Op `{op}` of {where} has no mapping to ONNX. Write that layer with {what}, or move it out of the model."


def _not_converted(failed: Sequence[str], graph: tf.compat.v1.GraphDef, layers: Sequence[str], error: Exception) -> str:
    """Say which op was being converted, what tf2onnx said, and what to do."""
    said = f"{type(error).__name__}: {first_line(error)}"
    if not failed:
        return f"tf2onnx cannot convert the model: {said}"
    ops = {node.name: node.op for each in (graph.node, *(f.node_def for f in graph.library.function)) for node in each}
    op = f"op `{ops[failed[0]]}` of " if failed[0] in ops else ""
    what = OTHERWISE.get(ops.get(failed[0], ""), "other ops")
    return (
        f"tf2onnx cannot convert {op}{_place(failed[0], layers)}: {said}. Write that layer with {what}, or move it out "
        "of the model."
    )


def _place(node: str, layers: Sequence[str]) -> str:
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
def _listening() -> Iterator[Heard]:
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
