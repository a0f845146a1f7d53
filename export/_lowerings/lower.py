"""Trace a model with its attention layers in a lowering: the same for all of them, or for each the fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras

from keras_attn import AttentionPooling

from .._internals.keras_internals import layers_of
from .._model.golden_cases import Cases
from .._model.signature import Signature, layer_names
from .._options import PORTABLE, Options, runs_here
from .._progress import Progress
from .._tracing.attention_calls import DOMAIN, Call, Tagger
from .._tracing.saved_model import traced_function
from .._tracing.to_onnx import trace
from .bodies import BODIES, candidates, lowering_of, lowest_opset
from .fastest import fastest
from .lowered import Lowered


def lowered_model(
    model: keras.Model,
    signature: Signature,
    golden: Cases,
    options: Options,
    function: Any,
    scratch: Path,
    step: Progress,
) -> Lowered:
    """Trace a model with its attention layers in the lowering that was asked for.

    Args:
        model: The model.
        signature: Its signature.
        golden: Its golden cases; `"auto"` measures on one of them.
        options: What was asked for.
        function: The concrete function behind the SavedModel of the model.
        scratch: A folder that does not exist yet, for files that are not kept.
        step: Is told what is being done.

    Raises:
        UnsupportedModelError: An op has no mapping to ONNX.
        ExportError: A call did not come through as one node.
    """
    scratch.mkdir()
    step("Tracing to ONNX")
    if _is_written_plainly(model, options.lowering):
        return Lowered(trace(function, layer_names(model)), {})
    if options.lowering != "auto":
        return _lowered(model, signature, lambda call: lowering_of(call, options.lowering), options)
    opset = options.opset
    usable = [name for name in BODIES if _is_usable(name, opset)]

    def first_candidate(call: Call) -> str:
        return next((name for name in candidates(call) if name in usable), PORTABLE)

    measured = _lowered(model, signature, first_candidate, options)
    choices = fastest(measured, usable, golden, options, scratch, step)
    step("Tracing to ONNX with the fastest")
    by_op = {call.op: choice for call, choice in choices.items()}
    chosen = {op: choice.lowering for op, choice in by_op.items()}
    lowered = _lowered(model, signature, lambda call: chosen.get(call.op, PORTABLE), options)
    return replace(lowered, choices={call: by_op[call.op] for call in lowered.lowerings if call.op in by_op})


def _is_usable(lowering: str, opset: int | None) -> bool:
    """Tell whether a lowering can be written at the opset that was asked for, and runs on this onnxruntime."""
    lowest = lowest_opset(lowering)
    return (opset is None or lowest <= opset) and runs_here(opset or lowest, [lowering])


def _is_written_plainly(model: keras.Model, lowering: str) -> bool:
    """Tell whether the graph of the SavedModel is what the lowering asks for: not if it has blocks of queries."""
    layers = [layer for layer in layers_of(model) if isinstance(layer, AttentionPooling)]
    return not layers or (lowering == PORTABLE and not any(getattr(x, "query_block_size", None) for x in layers))


def _lowered(
    model: keras.Model, signature: Signature, lowering_for: Callable[[Call], str], options: Options
) -> Lowered:
    # int8 gives all rows of a tensor one scale, those of the padding too
    tagger = Tagger(lambda call: lowering_for(call) != PORTABLE, hides_unseen=options.precision == "int8")
    traced = trace(traced_function(model, signature, tagger.tracing), layer_names(model), tagger.tagged)
    there = {node.op_type for node in traced.model.graph.node if node.domain == DOMAIN}
    lowerings = {call: lowering_for(call) for call in tagger.calls if call not in tagger.tagged or call.op in there}
    return Lowered(traced, lowerings)
