"""Convert a traced function to an ONNX model, with an error that names the layer of an unsupported operator."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import onnx
import tensorflow as tf

from .._errors import UnsupportedModelError
from .._onnx.traced_model import FUNCTION_DOMAIN, TracedModel
from .._operators import table
from .._operators.signals.split_complex import split_complex_tensors
from .._options import TF2ONNX_OPSET
from .._passes.canonical_order import sort_reachable_nodes, sort_weights
from .._passes.constant_folding import fold_subgraphs, fold_weights
from .._passes.loop_conditions import remove_conditions
from .._passes.loop_passthrough_state import remove_passthrough_state
from .._passes.node_names import rename
from .._passes.passes import Pass, run_passes
from .._passes.rewrite_rules import apply_rules
from .._private_api import tf2onnx_internals
from . import conversion_errors as errors
from .attention_calls import TracedCall
from .freeze import FrozenGraph, check_calls_intact, freeze_function, make_call_handlers
from .lookup_tables import make_lookup_handlers, set_table_shapes

NOT_DENSE = {"ragged": (tf.RaggedTensor, tf.RaggedTensorSpec), "sparse": (tf.SparseTensor, tf.SparseTensorSpec)}

# `remove_passthrough_state` makes bodies read weights and constants from the outer graph, where `remove_conditions` can
# compare them and `fold_subgraphs` can fold layouts. Rules come last: they match products by shapes of folded weights.
PASSES: tuple[Pass, ...] = (remove_passthrough_state, remove_conditions, fold_subgraphs, fold_weights, apply_rules)


def convert_to_onnx(function: Any, layers: Sequence[str], calls: Sequence[TracedCall] = ()) -> TracedModel:
    """Return the ONNX model (opset 18) of a concrete function.

    The names of the function's inputs and of the outputs in its dict become the names in ONNX. Attention calls that
    were traced as named functions become nodes of the domain `alt.keras_attn`, without a body.

    Raises:
        UnsupportedModelError: If an operator has no mapping to ONNX; the message names the operator and its layer.
        ExportError: If TensorFlow or tf2onnx changed the node of an attention call.
    """
    _refuse_outputs(function)
    _refuse_state(function, layers)
    model, source = _convert(function, layers, calls)
    shapes = {name: _read_output_shape(spec.shape, name, model) for name, spec in function.structured_outputs.items()}
    traced = TracedModel(model, shapes, source.weights, source.unfolded_weights)
    functions = [function.signature.name for function in source.graph.library.function]
    # `rename` numbers names in node order, and `sort_weights` sorts weights without a reader by name.
    naming_passes = (sort_reachable_nodes, partial(rename, layers=layers, functions=functions), sort_weights)
    run_passes(traced, (*PASSES, *naming_passes))
    return traced


def _map_tensor_names(function: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the ONNX names of the inputs and of the outputs of a concrete function, by TensorFlow name."""
    captured = {tensor.name for tensor in function.graph.internal_captures}  # variables and eager constants
    positional, keyword_inputs = function.structured_input_signature
    input_names = {name.lower(): name for names in (*positional, keyword_inputs) for name in names}
    nodes = {tensor.name: tensor.name.partition(":")[0] for tensor in function.inputs if tensor.name not in captured}
    # TensorFlow writes names of inputs in lower case, and flattens a dict of outputs in the order of its keys.
    inputs = {name: input_names.get(node, node) for name, node in nodes.items()}
    results = sorted(function.structured_outputs)
    return inputs, {tensor.name: name for tensor, name in zip(function.outputs, results, strict=True)}


def _convert(function: Any, layers: Sequence[str], calls: Sequence[TracedCall]) -> tuple[onnx.ModelProto, FrozenGraph]:
    """Return the ONNX model that tf2onnx makes of a function, and the frozen graph of the function."""
    inputs, outputs = _map_tensor_names(function)
    with errors.capture_log() as log, tf2onnx_internals.patched_tf2onnx():
        graph = tf.compat.v1.GraphDef()
        try:
            frozen = freeze_function(function, [*inputs], [*outputs], keep_calls=bool(calls))
            graph = frozen.graph
            set_table_shapes(graph)
            weights = {f"{name}:0": name for name in frozen.weights}
            call_handlers = make_call_handlers(graph, calls) if calls else {}
            handlers = table.build_handlers() | make_lookup_handlers(function) | call_handlers
            model = tf2onnx_internals.convert_graph(
                graph,
                name="keras-attn",
                opset=TF2ONNX_OPSET,
                input_names=[*inputs, *weights],
                output_names=[*outputs],
                tensors_to_rename=inputs | outputs | weights,
                custom_op_handlers=handlers,
                custom_rewriter=[split_complex_tensors],
                extra_opset=[onnx.helper.make_opsetid(FUNCTION_DOMAIN, 1)],
            )
        except table.RejectedNodeError as refused:
            message = errors.format_unsupported_op(refused.op_type, refused.node, layers, refused.reason)
            raise UnsupportedModelError(message) from None
        except Exception as error:
            # Handlers of tf2onnx raise AssertionError, ValueError, RuntimeError and KeyError.
            named_nodes = [] if log.failed_nodes else errors.find_named_node(str(error), graph)
            message = _format_first_error([*log.unsupported_ops, *named_nodes], layers)
            message = message or errors.format_failed_conversion(log.failed_nodes, graph, layers, error)
            raise UnsupportedModelError(message) from error
    if message := _format_first_error([*log.unsupported_ops, *errors.find_unknown_nodes(model.graph)], layers):
        raise UnsupportedModelError(message)
    check_calls_intact(model.graph, calls, frozen.reachable_ops)
    return model, frozen


def _format_first_error(unsupported_ops: Sequence[tuple[str, str]], layers: Sequence[str]) -> str:
    """Return the message about the first unsupported operator, or an empty string."""
    return next((errors.format_unsupported_op(op, node, layers) for node, op in unsupported_ops), "")


def _refuse_outputs(function: Any) -> None:
    for name, spec in function.structured_outputs.items():
        for storage, types in NOT_DENSE.items():
            if isinstance(spec, types):
                raise UnsupportedModelError(
                    f"Output `{name}` is {storage}; only dense tensors can be exported. Leave `{storage}=True` out."
                )


def _read_output_shape(shape: tf.TensorShape, output: str, model: onnx.ModelProto) -> tuple[int | None, ...]:
    """Return the static shape of an output; if its rank is unknown in TensorFlow, the shape in the ONNX model."""
    if shape.rank is not None:
        return tuple(shape)
    (value,) = (value for value in model.graph.output if value.name == output)
    return tuple(axis.dim_value or None for axis in value.type.tensor_type.shape.dim)


def _refuse_state(function: Any, layers: Sequence[str]) -> None:
    """Raise UnsupportedModelError if the graph assigns to a variable, since freezing would drop the assignment."""
    # Assignments to Keras variables are not part of the graph: `discard_updates` discards them.
    graph = function.graph.as_graph_def()
    for node in (*graph.node, *(node for library in graph.library.function for node in library.node_def)):
        if node.op.startswith("Assign") and node.op.endswith("VariableOp"):
            raise UnsupportedModelError(
                f"Op `{node.op}` of {errors.describe_location(node.name, layers)} changes a variable when the model is "
                "called; a file would freeze its present value. Pass the state as an input and an output."
            )
