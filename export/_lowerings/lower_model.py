"""Lower the attention calls of a traced model."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial

from .._lowering_names import ADAPTIVE, FOR_CPU, IN_BLOCKS, PORTABLE
from .._onnx.layer_scopes import layer_path
from .._onnx.symbolic_shapes import Axes, Spread
from .._onnxruntime_releases import FUSED_OPSET, runs_here
from .._options import Options
from .._passes.passes import Pass, run_passes
from .._passes.rewrite_rules import ONNXRUNTIME_RULES, apply_rules
from .._passes.shape_folding import fold_shapes
from .._tracing.attention_calls import Call
from .._tracing.attention_pattern import with_written_attention
from .._tracing.trace_attention import AttentionLayerInfo, TracedAttention
from .heads import heads_per_key
from .lowered_model import Lowered
from .lowering_choice import lowering_of, refusal

FUSED = "fused"


def lowered_models(model: TracedAttention, options: Options, inputs: Mapping[str, Axes]) -> Iterator[Lowered]:
    """Yield a traced model with its attention in the lowering of the export.

    If a package wrote attention by hand, the first model has the operator `Attention` in its place; the second one,
    which has not, is for a caller who finds that outputs of the first one differ.

    Args:
        model: The traced model.
        options: The options of the export.
        inputs: The axes of the inputs, by name.
    """
    lowered = _lowered(model, options)
    rotates = takes_rotations(options.lowering, options.written_for, options.precision)
    if _takes_operator(options):
        changed, calls = with_written_attention(model.traced, len(model.calls), inputs)
        if calls:
            written = [replace(call, owner=_owner(call, model.layers)) for call in calls]
            lowerings = {**lowered.lowerings, **dict.fromkeys(written, FUSED)}
            with_operator = replace(lowered, traced=changed, lowerings=lowerings, written=tuple(written))
            yield _sized(with_operator, inputs, rotates=rotates)
    yield _sized(lowered, inputs, rotates=rotates)


def _lowered(model: TracedAttention, options: Options) -> Lowered:
    calls = model.calls
    lowerings = {call: lowering_of(call, options.lowering, options.written_for, options.precision) for call in calls}
    outermost = {node.op_type for node in model.traced.model.graph.node}
    for call, lowering in lowerings.items():
        if lowering == IN_BLOCKS and call.op not in outermost:  # OpenVINO 2026.4 loads no loop of ours in a loop
            lowerings[call] = PORTABLE
    reasons = {call: refusal(call, options.lowering, options.written_for) for call in calls}
    refusals = {call: reason for call, reason in reasons.items() if reason}
    return Lowered(
        model.traced,
        lowerings,
        options.written_for,
        layers=model.layers,
        precision=options.precision,
        refusals=refusals,
    )


def _owner(call: Call, layers: Sequence[AttentionLayerInfo]) -> int:
    """Return the identity of the innermost layer around hand-written attention, or of the call if there is none."""
    path = layer_path(*call.layer.split("/"))
    around = [layer for layer in layers if f"/{layer.path}/" in f"/{path}/"]
    return max(around, key=lambda layer: len(layer.path)).owner if around else id(call)


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
