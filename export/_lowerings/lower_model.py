"""Trace a model and lower its attention calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

from keras_attn import MaskedSoftmax

from .._lowering_names import ADAPTIVE, FOR_CPU, IN_BLOCKS, PORTABLE
from .._onnx.layer_scopes import layer_path
from .._onnx.symbolic_shapes import Axes, Spread
from .._onnx.traced_model import DOMAIN, Traced
from .._onnx.traversal import all_nodes
from .._onnxruntime_releases import FUSED_OPSET, runs_here
from .._options import Options
from .._passes.passes import Pass, run_passes
from .._passes.rewrite_rules import ONNXRUNTIME_RULES, apply_rules
from .._passes.shape_folding import fold_shapes
from .._signature.signature import Signature
from .._tracing.attention_calls import Call, Tagger
from .._tracing.attention_pattern import with_written_attention
from .._tracing.saved_model import traced_function
from .._tracing.to_onnx import trace
from .heads import heads_per_key
from .lowered_model import Lowered
from .lowering_choice import lowering_of

FUSED = "fused"


def lowered_models(
    signature: Signature, options: Options, function: Any, inputs: Mapping[str, Axes]
) -> Iterator[Lowered]:
    """Trace a model with its attention layers in the lowering that was asked for.

    Where a package wrote attention by hand, first the model with that as the operator `Attention`; then without, for
    whoever finds that it is not the same.

    Args:
        signature: The model.
        options: What was asked for.
        function: The concrete function behind the SavedModel of the model.
        inputs: The axes of its inputs, by name.

    Raises:
        UnsupportedModelError: An op has no mapping to ONNX.
        ExportError: A call did not come through as one node.
    """
    traced, calls, reasons = _traced(signature, function, hides_masked=options.precision == "int8")
    traced = replace(traced, outputs={name: traced.outputs[name] for name in signature.outputs})
    lowered = replace(_lowered(traced, calls, options), reasons=reasons)
    rotates = takes_rotations(options.lowering, options.written_for, options.precision)
    if _takes_operator(options):
        changed, written = with_written_attention(traced, len(calls), inputs)
        if written:
            written = [replace(call, owner=_owner(call, signature.manifest_layers)) for call in written]
            lowerings = {**lowered.lowerings, **dict.fromkeys(written, FUSED)}
            found = replace(lowered, traced=changed, lowerings=lowerings, written=tuple(written))
            yield _sized(found, inputs, rotates=rotates)
    yield _sized(lowered, inputs, rotates=rotates)


def _lowered(traced: Traced, calls: Sequence[Call], options: Options) -> Lowered:
    lowerings = {call: lowering_of(call, options.lowering, options.written_for, options.precision) for call in calls}
    outermost = {node.op_type for node in traced.model.graph.node}
    for call, lowering in lowerings.items():
        if lowering == IN_BLOCKS and call.op not in outermost:  # OpenVINO 2026.4 loads no loop of ours in a loop
            lowerings[call] = PORTABLE
    return Lowered(traced, lowerings, options.written_for, precision=options.precision)


def _owner(call: Call, layers: Sequence[Any]) -> int:
    """Return the identity of the innermost layer around hand-written attention, or of the call if there is none."""
    path = layer_path(*call.layer.split("/"))
    around = [layer for layer in layers if f"/{layer.path}/" in f"/{path}/"]
    return id(max(around, key=lambda layer: len(layer.path))) if around else id(call)


def takes_rotations(lowering: str, written_for: str, precision: str) -> bool:
    """Tell whether a file with attention may hold onnxruntime's own operator for rotations."""
    return (lowering, written_for) == (ADAPTIVE, FOR_CPU) and precision != "float16"


def _sized(lowered: Lowered, inputs: Mapping[str, Axes], *, rotates: bool) -> Lowered:
    """Return a model in which sizes that are known are not computed, and rotations are one operator if they may."""
    spread = {}
    for call in lowered.lowerings:
        order = [*call.shapes]
        spread[call.op] = Spread(order.index("queries"), order.index("values"), heads_per_key(call))
    passes: list[Pass] = [partial(fold_shapes, inputs=inputs, spread=spread)]
    if rotates and not {*lowered.lowerings.values()}.isdisjoint((ADAPTIVE, FUSED)):  # which need as new a runtime
        passes.append(partial(apply_rules, rules=ONNXRUNTIME_RULES))
    traced = replace(lowered.traced, model=deepcopy(lowered.traced.model))
    run_passes(traced, passes)
    return replace(lowered, traced=traced)


def _takes_operator(options: Options) -> bool:
    """Tell whether the file may hold the operator `Attention`, in the form for CPUs."""
    is_for_cpu = options.written_for == FOR_CPU
    is_new = options.opset is None or options.opset >= FUSED_OPSET
    return is_new and options.lowering != PORTABLE and is_for_cpu and runs_here(FUSED_OPSET, [FUSED])


def _is_written_plainly(signature: Signature) -> bool:
    """Tell whether there is nothing to lower: then the graph of the SavedModel will do."""
    return all(isinstance(layer, MaskedSoftmax) for layer in signature.attention)


def _traced(signature: Signature, function: Any, *, hides_masked: bool) -> tuple[Traced, list[Call], dict[int, str]]:
    """Return the model, with each call of an attention layer as a node, these calls, and the reasons of other layers.

    Args:
        signature: The model.
        function: The concrete function behind the SavedModel of the model.
        hides_masked: Whether padding shares a scale with what is seen, as in int8.
    """
    if _is_written_plainly(signature):
        return trace(function, signature.layer_names), [], {}
    tagger = Tagger(hides_masked=hides_masked)
    traced = trace(traced_function(signature, tagger.tracing), signature.layer_names, tagger.calls)
    there = {node.op_type for node in all_nodes(traced.model.graph) if node.domain == DOMAIN}
    return traced, [call for call in tagger.calls if call.op in there], tagger.reasons
