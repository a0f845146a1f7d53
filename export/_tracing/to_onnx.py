"""Convert a traced function to an ONNX model, with clear errors for unsupported operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import tensorflow as tf

from .._errors import UnsupportedModelError
from .._onnx.canonical_order import in_order, put_in_order
from .._onnx.node_names import rename
from .._onnx.traced_model import DOMAIN, Traced
from .._operators import table
from .._operators.signals.split_complex import parts_apart
from .._options import TRACED_OPSET
from .._passes.boolean_eye_like import cast_boolean_eyes
from .._passes.constant_folding import fold_in_bodies, folded
from .._passes.loop_conditions import drop_conditions
from .._passes.loop_passthrough_state import capture_unchanged
from .._passes.rewrite_rules import simplify
from .._private_api import tf2onnx_internals
from .attention_calls import Call
from .conversion_errors import listening, named_in, no_mapping, not_converted, place, unknown_nodes
from .freeze import call_handlers, check_calls, frozen
from .lookup_tables import lookup_handlers, tables_with_shapes

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
    with listening() as heard, tf2onnx_internals.patched_tf2onnx():
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
        except table.RefusedNodeError as refused:
            message = no_mapping(refused.op_type, refused.node, layers, refused.reason)
            raise UnsupportedModelError(message) from None
        except Exception as error:
            # tf2onnx raises whatever its handlers meet: AssertionError, ValueError, RuntimeError, KeyError
            for node, op in [*heard.unmapped, *([] if heard.failed else named_in(str(error), graph))]:
                raise UnsupportedModelError(no_mapping(op, node, layers)) from error
            raise UnsupportedModelError(not_converted(heard.failed, graph, layers, error)) from error
    for node, op in [*heard.unmapped, *unknown_nodes(model.graph)]:
        raise UnsupportedModelError(no_mapping(op, node, layers))
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
                f"Op `{node.op}` of {place(node.name, layers)} changes a variable when the model is called; a file "
                "would freeze the value it has now. Pass the state as an input and an output."
            )
