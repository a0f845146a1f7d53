"""Trace a Keras model to ONNX, with one node for each attention call."""

from dataclasses import dataclass, replace
from typing import Any

from keras_attn import AttentionPooling, MaskedSoftmax

from .._onnx.traced_model import FUNCTION_DOMAIN, TracedModel
from .._onnx.traversal import iter_nodes
from .._private_api.builtin_attention import is_builtin_attention
from .._signature.signature import Signature
from .attention_calls import CallTracer, TracedCall
from .saved_model import trace_function
from .to_onnx import convert_to_onnx


@dataclass(frozen=True)
class AttentionLayerInfo:
    """Facts about an attention layer of the model, for the manifest.

    Attributes:
        layer_id: `id` of the layer, as in `TracedCall.layer_id`.
        path: Path of the layer.
        class_name: Name of its class.
        reason: Why the file has plain operators for the layer, if none of its calls is a node.
    """

    layer_id: int
    path: str
    class_name: str
    reason: str


@dataclass(frozen=True)
class TracedAttention:
    """A traced model, and its attention calls and layers.

    Attributes:
        name: Name of the Keras model.
        traced: The model, at opset 18.
        calls: Reachable attention calls, one node each.
        layers: All attention layers of the model.
    """

    name: str
    traced: TracedModel
    calls: tuple[TracedCall, ...]
    layers: tuple[AttentionLayerInfo, ...]


def trace_attention(signature: Signature, function: Any, *, needs_zeroed_padding: bool) -> TracedAttention:
    """Trace a model to ONNX; a model without attention calls has the graph of its SavedModel.

    Args:
        signature: The model.
        function: The concrete function of the SavedModel's signature.
        needs_zeroed_padding: Whether to zero masked positions before products, so that they do not affect int8 scales.

    Raises:
        UnsupportedModelError: If an operator has no conversion to ONNX.
        ExportError: If an attention call is not one node in the graph.
    """
    tracer = CallTracer(needs_zeroed_padding=needs_zeroed_padding)
    if has_attention(signature):
        traced = convert_to_onnx(trace_function(signature, tracer.intercept), signature.layer_names, tracer.calls)
    else:
        traced = convert_to_onnx(function, signature.layer_names)
    operators = {node.op_type for node in iter_nodes(traced.model.graph) if node.domain == FUNCTION_DOMAIN}
    return TracedAttention(
        signature.model.name,
        replace(traced, outputs={name: traced.outputs[name] for name in signature.outputs}),
        tuple(call for call in tracer.calls if call.op_type in operators),
        tuple(_describe_layer(layer, tracer.reasons.get(id(layer))) for layer in signature.manifest_layers),
    )


def has_attention(signature: Signature) -> bool:
    """Return True if a layer may call attention; `MaskedSoftmax` does not."""
    return any(not isinstance(layer, MaskedSoftmax) for layer in signature.attention_layers)


def _describe_layer(layer: Any, reason: str | None) -> AttentionLayerInfo:
    return AttentionLayerInfo(id(layer), layer.path, type(layer).__name__, reason or _explain_missing_call(layer))


def _explain_missing_call(layer: Any) -> str:
    if isinstance(layer, MaskedSoftmax):
        return "it computes a softmax only"
    if isinstance(layer, AttentionPooling) or is_builtin_attention(layer):
        return "no output of the model depends on its attention"
    return "its class is derived from an attention layer of Keras, and may compute attention in another way"
