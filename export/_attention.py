"""Trace a model with its attention layers in a lowering: the same for all of them, or for each the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import keras
import onnx

from keras_attn import AttentionPooling

from . import _large_weights
from ._auto import Choice, fastest
from ._cases import Cases
from ._composites import DOMAIN, Call, Tagger
from ._lowerings import BODIES, candidates, function_of, lowering_of, lowest_opset
from ._options import PORTABLE, TRACED_OPSET, Options, runs_here
from ._progress import Progress
from ._saved_model import write_saved_model
from ._signature import Signature, layer_names
from ._trace import Shapes, trace, trace_function


@dataclass(frozen=True)
class Traced:
    """A traced model.

    Attributes:
        model: At opset 18; nodes of the domain `keras_attn` stand for the calls of attention layers that are lowered.
        outputs: Static shapes of the outputs.
        weights: Weights that are inputs of the graph, since they are too large for it.
        lowerings: The lowering of each call, plain primitives among them.
        choices: What was measured for each call, where the fastest was to be found.
    """

    model: onnx.ModelProto
    outputs: Shapes
    weights: _large_weights.Weights
    lowerings: Mapping[Call, str]
    choices: Mapping[Call, Choice] = field(default_factory=dict)

    def opset(self, asked: int | None) -> int:
        """Return the opset to write: the one asked for, or the lowest that the lowerings need."""
        needed = [lowest_opset(lowering) for lowering in self.lowerings.values() if lowering != PORTABLE]
        return max([TRACED_OPSET, *needed]) if asked is None else asked

    def functions(self, opset: int) -> list[onnx.FunctionProto]:
        """Return the bodies of the calls in the model."""
        lowered = ((call, lowering) for call, lowering in self.lowerings.items() if lowering != PORTABLE)
        return [function_of(call, lowering, opset) for call, lowering in lowered]

    def layers(self) -> dict[int, dict[str, Any]]:
        """Return what the manifest says of each layer that was called, by the layer's identity."""
        told: dict[int, dict[str, Any]] = {}
        for call, lowering in self.lowerings.items():
            layer = told.setdefault(call.owner, {"lowering": lowering})
            if lowering not in layer["lowering"].split(" and "):  # a layer that is called twice
                layer["lowering"] += f" and {lowering}"
            if call in self.choices:
                layer.setdefault("milliseconds", []).append(self.choices[call].milliseconds)
        return told


def traced_model(
    model: keras.Model,
    signature: Signature,
    golden: Cases,
    options: Options,
    saved_model: Path,
    scratch: Path,
    step: Progress,
) -> Traced:
    """Trace a model with its attention layers in the lowering that was asked for.

    Args:
        model: The model.
        signature: Its signature.
        golden: Its golden cases; `"auto"` measures on one of them.
        options: What was asked for.
        saved_model: The SavedModel of the model.
        scratch: A folder that does not exist yet, for files that are not kept.
        step: Is told what is being done.

    Raises:
        UnsupportedModelError: An op has no mapping to ONNX.
        ExportError: A call did not come through as one node.
    """
    scratch.mkdir()
    step("Tracing to ONNX")
    if not _large_weights.is_large(model) and _is_written_plainly(model, options.lowering):
        graph, outputs = trace(saved_model, layer_names(model))
        return Traced(graph, outputs, {}, {})
    if options.lowering != "auto":
        return _traced(
            model, signature, lambda call: lowering_of(call, options.lowering), options, scratch / "saved_model"
        )
    opset = options.opset
    usable = [name for name in BODIES if _is_usable(name, opset)]

    def first_candidate(call: Call) -> str:
        return next((name for name in candidates(call) if name in usable), PORTABLE)

    measured = _traced(model, signature, first_candidate, options, scratch / "measured")
    (scratch / "files").mkdir()
    choices = fastest(measured, usable, golden, options, scratch / "files", step)
    step("Tracing to ONNX with the fastest")
    by_op = {call.op: choice for call, choice in choices.items()}
    chosen = {op: choice.lowering for op, choice in by_op.items()}
    traced = _traced(model, signature, lambda call: chosen.get(call.op, PORTABLE), options, scratch / "chosen")
    return replace(traced, choices={call: by_op[call.op] for call in traced.lowerings if call.op in by_op})


def _is_usable(lowering: str, opset: int | None) -> bool:
    """Tell whether a lowering can be written at the opset that was asked for, and runs on this onnxruntime."""
    lowest = lowest_opset(lowering)
    return (opset is None or lowest <= opset) and runs_here(opset or lowest, [lowering])


def _is_written_plainly(model: keras.Model, lowering: str) -> bool:
    """Tell whether the graph of the SavedModel is what the lowering asks for: not if it has blocks of queries."""
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, AttentionPooling)]
    return not layers or (lowering == PORTABLE and not any(getattr(x, "query_block_size", None) for x in layers))


def _traced(
    model: keras.Model, signature: Signature, lowering_for: Callable[[Call], str], options: Options, folder: Path
) -> Traced:
    # int8 gives all rows of a tensor one scale, those of the padding too
    tagger = Tagger(lambda call: lowering_for(call) != PORTABLE, hides_unseen=options.precision == "int8")
    layers = layer_names(model)
    weights: _large_weights.Weights = {}
    if _large_weights.is_large(model):
        function, weights = _large_weights.function_of_weights(model, signature, tagger.tracing)
        graph, outputs = trace_function(function, layers, tagger.tagged)
    else:
        # through a SavedModel, so that tensors have the names that they have in the SavedModel of the bundle
        write_saved_model(model, signature, folder, tagger.tracing)
        graph, outputs = trace(folder, layers, tagger.tagged)
    there = {node.op_type for node in graph.graph.node if node.domain == DOMAIN}
    lowerings = {call: lowering_for(call) for call in tagger.calls if call not in tagger.tagged or call.op in there}
    return Traced(graph, outputs, weights, lowerings)
