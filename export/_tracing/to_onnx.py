"""Convert a traced function to an ONNX model, with clear errors for unsupported operators."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import onnx
import tensorflow as tf

from .._errors import UnsupportedModelError
from .._onnx.traced_model import DOMAIN, Traced
from .._operators import table
from .._operators.signals.split_complex import parts_apart
from .._options import TRACED_OPSET
from .._passes.canonical_order import sort_nodes, sort_weights
from .._passes.constant_folding import fold_bodies, fold_weights
from .._passes.loop_conditions import remove_conditions
from .._passes.loop_passthrough_state import remove_passthrough_state
from .._passes.node_names import rename
from .._passes.passes import Pass, run_passes
from .._passes.rewrite_rules import apply_rules
from .._private_api import tf2onnx_internals
from .attention_calls import Call
from .conversion_errors import listening, named_in, no_mapping, not_converted, place, unknown_nodes
from .freeze import Frozen, call_handlers, check_calls, frozen
from .lookup_tables import lookup_handlers, tables_with_shapes

NOT_DENSE = {"ragged": (tf.RaggedTensor, tf.RaggedTensorSpec), "sparse": (tf.SparseTensor, tf.SparseTensorSpec)}

# Bodies read weights and constants from outside only after pass-through state is gone, so that conditions and layouts
# in bodies can be compared and folded. Rules recognize products by the shapes of folded weights.
PASSES: tuple[Pass, ...] = (remove_passthrough_state, remove_conditions, fold_bodies, fold_weights, apply_rules)


def trace(function: Any, layers: Sequence[str], calls: Sequence[Call] = ()) -> Traced:
    """Return the ONNX model (opset 18) of a concrete function.

    The function takes tensors by name and returns a dict; these are the names in ONNX. Attention calls that were traced
    as named functions become nodes of the domain `alt.keras_attn`, without a body.

    Raises:
        UnsupportedModelError: If an op has no mapping to ONNX; the message names it and the layer it comes from.
        ExportError: If a named function did not come through as one node with all its inputs.
    """
    _refuse_outputs(function)
    _refuse_state(function, layers)
    model, source = _convert(function, layers, calls)
    shapes = {name: _shape(spec.shape, name, model) for name, spec in function.structured_outputs.items()}
    traced = Traced(model, shapes, source.weights, source.unfolded)
    functions = [function.signature.name for function in source.graph.library.function]
    # Names follow from the order of the nodes, and the order of weights that no node reads from their names.
    naming_passes = (sort_nodes, partial(rename, layers=layers, functions=functions), sort_weights)
    run_passes(traced, (*PASSES, *naming_passes))
    return traced


def _tensor_names(function: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names in ONNX of the inputs and of the outputs of a concrete function, by name in TensorFlow."""
    captured = {tensor.name for tensor in function.graph.internal_captures}  # variables, and constants of layers
    positional, by_name = function.structured_input_signature
    written = {name.lower(): name for names in (*positional, by_name) for name in names}
    nodes = {tensor.name: tensor.name.partition(":")[0] for tensor in function.inputs if tensor.name not in captured}
    inputs = {name: written.get(node, node) for name, node in nodes.items()}  # TensorFlow calls the node of `X` `x`
    results = sorted(function.structured_outputs)  # TensorFlow flattens dicts by key
    return inputs, {tensor.name: name for tensor, name in zip(function.outputs, results, strict=True)}


def _convert(function: Any, layers: Sequence[str], calls: Sequence[Call]) -> tuple[onnx.ModelProto, Frozen]:
    """Return the result of tf2onnx for a function, and the frozen graph that tf2onnx converted."""
    inputs, outputs = _tensor_names(function)
    with listening() as heard, tf2onnx_internals.patched_tf2onnx():
        graph = tf.compat.v1.GraphDef()
        try:
            result = frozen(function, [*inputs], [*outputs], keep_calls=bool(calls))
            graph = result.graph
            tables_with_shapes(graph)
            weights = {f"{name}:0": name for name in result.weights}
            handlers = table.handlers() | lookup_handlers(function) | (call_handlers(graph, calls) if calls else {})
            model = tf2onnx_internals.converted(
                graph,
                name="keras-attn",
                opset=TRACED_OPSET,
                input_names=[*inputs, *weights],
                output_names=[*outputs],
                tensors_to_rename=inputs | outputs | weights,
                custom_op_handlers=handlers,
                custom_rewriter=[parts_apart],
                extra_opset=[onnx.helper.make_opsetid(DOMAIN, 1)],
            )
        except table.RefusedNodeError as refused:
            message = no_mapping(refused.op_type, refused.node, layers, refused.reason)
            raise UnsupportedModelError(message) from None
        except Exception as error:
            # tf2onnx raises whatever its handlers meet: AssertionError, ValueError, RuntimeError, KeyError
            unmapped = [*heard.unmapped, *([] if heard.failed else named_in(str(error), graph))]
            message = _first_error(unmapped, layers) or not_converted(heard.failed, graph, layers, error)
            raise UnsupportedModelError(message) from error
    if message := _first_error([*heard.unmapped, *unknown_nodes(model.graph)], layers):
        raise UnsupportedModelError(message)
    check_calls(model.graph, calls, result.needed)
    return model, result


def _first_error(unmapped: Sequence[tuple[str, str]], layers: Sequence[str]) -> str:
    """Return the message for the first operator without mapping, empty if there is none."""
    return next((no_mapping(op, node, layers) for node, op in unmapped), "")


def _refuse_outputs(function: Any) -> None:
    for name, spec in function.structured_outputs.items():
        for kind, types in NOT_DENSE.items():
            if isinstance(spec, types):
                raise UnsupportedModelError(
                    f"Output `{name}` is {kind}; only dense tensors can be exported. Leave `{kind}=True` out."
                )


def _shape(shape: tf.TensorShape, output: str, model: onnx.ModelProto) -> tuple[int | None, ...]:
    """Return the static shape of an output; where TensorFlow knows no rank, what the model says of it."""
    if shape.rank is not None:
        return tuple(shape)
    (value,) = (value for value in model.graph.output if value.name == output)
    return tuple(axis.dim_value or None for axis in value.type.tensor_type.shape.dim)


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
