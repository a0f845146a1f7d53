"""Trace a model with its attention layers in the lowering that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras

from keras_attn import AttentionPooling

from .._internals.keras_internals import layers_of
from .._internals.stock_attention import is_stock_attention
from .._model.signature import Signature, layer_names
from .._options import Options
from .._tracing.attention_calls import DOMAIN, Call, Tagger
from .._tracing.nodes import all_nodes
from .._tracing.saved_model import traced_function
from .._tracing.to_onnx import trace
from .._tracing.traced import Traced
from .bodies import lowering_of
from .lowered import Lowered


def lowered_model(model: keras.Model, signature: Signature, options: Options, function: Any) -> Lowered:
    """Trace a model with its attention layers in the lowering that was asked for.

    Args:
        model: The model.
        signature: Its signature.
        options: What was asked for.
        function: The concrete function behind the SavedModel of the model.

    Raises:
        UnsupportedModelError: An op has no mapping to ONNX.
        ExportError: A call did not come through as one node.
    """
    traced, calls = _traced(model, signature, function, hides_unseen=options.precision == "int8")
    traced = replace(traced, outputs={name: traced.outputs[name] for name in signature.outputs})
    return _lowered(traced, calls, options.lowering, options.provider)


def _lowered(traced: Traced, calls: Sequence[Call], lowering: str, provider: str) -> Lowered:
    return Lowered(traced, {call: lowering_of(call, lowering, provider) for call in calls}, provider)


def _is_written_plainly(model: keras.Model) -> bool:
    """Tell whether there is nothing to lower: then the graph of the SavedModel will do."""
    return not any(isinstance(layer, AttentionPooling) or is_stock_attention(layer) for layer in layers_of(model))


def _traced(
    model: keras.Model, signature: Signature, function: Any, *, hides_unseen: bool
) -> tuple[Traced, list[Call]]:
    """Return the model, with each call of an attention layer as a node, and these calls.

    Args:
        model: The model.
        signature: Its signature.
        function: The concrete function behind the SavedModel of the model.
        hides_unseen: Whether padding shares a scale with what is seen, as in int8.
    """
    if _is_written_plainly(model):
        return trace(function, layer_names(model)), []
    tagger = Tagger(hides_unseen=hides_unseen)
    traced = trace(traced_function(model, signature, tagger.tracing), layer_names(model), tagger.calls)
    there = {node.op_type for node in all_nodes(traced.model.graph) if node.domain == DOMAIN}
    return traced, [call for call in tagger.calls if call.op in there]
