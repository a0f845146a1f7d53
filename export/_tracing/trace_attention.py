"""Trace a Keras model to ONNX, with one node for each attention call."""

from dataclasses import dataclass, replace
from typing import Any

from keras_attn import AttentionPooling, MaskedSoftmax

from .._onnx.traced_model import DOMAIN, Traced
from .._onnx.traversal import all_nodes
from .._private_api.builtin_attention import is_stock_attention
from .._signature.signature import Signature
from .attention_calls import Call, Tagger
from .saved_model import traced_function
from .to_onnx import trace


@dataclass(frozen=True)
class AttentionLayerInfo:
    """Facts about an attention layer of the model, for the manifest.

    Attributes:
        owner: The `id` of the layer, as in `Call.owner`.
        path: Its path.
        class_name: The name of its class.
        reason: The reason why it is written in plain operators if none of its calls is a node.
    """

    owner: int
    path: str
    class_name: str
    reason: str


@dataclass(frozen=True)
class TracedAttention:
    """A traced model.

    Attributes:
        name: The name of the Keras model.
        traced: The model, at opset 18.
        calls: Its attention calls, one node each; outputs of the model depend on them.
        layers: All its attention layers.
    """

    name: str
    traced: Traced
    calls: tuple[Call, ...]
    layers: tuple[AttentionLayerInfo, ...]


def trace_attention(signature: Signature, function: Any, *, hides_masked: bool) -> TracedAttention:
    """Trace a model to ONNX. A model without attention calls has the graph of its SavedModel.

    Args:
        signature: The model.
        function: The concrete function behind the SavedModel.
        hides_masked: Whether masked positions are set to zero before matrix products, which share a scale in int8.

    Raises:
        UnsupportedModelError: An operator has no conversion to ONNX.
        ExportError: A call is not one node in the graph.
    """
    tagger = Tagger(hides_masked=hides_masked)
    if has_attention(signature):
        traced = trace(traced_function(signature, tagger.tracing), signature.layer_names, tagger.calls)
    else:
        traced = trace(function, signature.layer_names)
    operators = {node.op_type for node in all_nodes(traced.model.graph) if node.domain == DOMAIN}
    return TracedAttention(
        signature.model.name,
        replace(traced, outputs={name: traced.outputs[name] for name in signature.outputs}),
        tuple(call for call in tagger.calls if call.op in operators),
        tuple(_attention_layer(layer, tagger.reasons.get(id(layer))) for layer in signature.manifest_layers),
    )


def has_attention(signature: Signature) -> bool:
    """Return True if a layer may call attention; `MaskedSoftmax` does not."""
    return any(not isinstance(layer, MaskedSoftmax) for layer in signature.attention)


def _attention_layer(layer: Any, reason: str | None) -> AttentionLayerInfo:
    return AttentionLayerInfo(id(layer), layer.path, type(layer).__name__, reason or _reason_without_call(layer))


def _reason_without_call(layer: Any) -> str:
    if isinstance(layer, MaskedSoftmax):
        return "it computes a softmax only"
    if isinstance(layer, AttentionPooling) or is_stock_attention(layer):
        return "no output of the model depends on its attention"
    return "its class is derived from an attention layer of Keras, and may compute attention in another way"
