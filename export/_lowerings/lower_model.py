"""Lower the attention calls of a traced model."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial

from .._lowering_names import ADAPTIVE, FOR_CPU, PORTABLE, PORTABLE_IN_BLOCKS
from .._onnx.layer_scopes import build_layer_path
from .._onnx.symbolic_shapes import AttentionShapeRule, SymbolicShape
from .._onnxruntime_releases import FUSED_OPSET, installed_runtime_supports
from .._options import Options
from .._passes.passes import Pass, run_passes
from .._passes.rewrite_rules import ONNXRUNTIME_RULES, apply_rules
from .._passes.shape_folding import fold_shapes
from .._tracing.attention_calls import TracedCall
from .._tracing.attention_pattern import replace_attention_patterns
from .._tracing.trace_attention import AttentionLayerInfo, TracedAttention
from .heads import get_query_group_size
from .lowered_model import LoweredModel
from .lowering_choice import choose_lowering, find_unsupported_reason

FUSED = "fused"


def iter_lowered_models(
    model: TracedAttention, options: Options, inputs: Mapping[str, SymbolicShape]
) -> Iterator[LoweredModel]:
    """Yield the lowered models of a traced model, best first; `inputs` are symbolic shapes by name.

    If the graph has attention patterns, the first model has the operator `Attention` in their place. The second model
    keeps the patterns, for a caller who finds that outputs of the first one differ.
    """
    lowered = _lower_calls(model, options)
    rotates = may_use_rotary_operator(options.lowering, options.attention_target, options.precision)
    if _may_use_attention_op(options):
        traced, pattern_calls = replace_attention_patterns(model.traced, len(model.calls), inputs)
        if pattern_calls:
            pattern_calls = [replace(call, layer_id=_find_owner(call, model.layers)) for call in pattern_calls]
            lowerings = {**lowered.lowerings, **dict.fromkeys(pattern_calls, FUSED)}
            operator_model = replace(lowered, traced=traced, lowerings=lowerings, pattern_calls=tuple(pattern_calls))
            yield _fold_model_shapes(operator_model, inputs, rotates=rotates)
    yield _fold_model_shapes(lowered, inputs, rotates=rotates)


def _lower_calls(model: TracedAttention, options: Options) -> LoweredModel:
    """Return a traced model with a lowering for each attention call."""
    calls = model.calls
    requested = (options.lowering, options.attention_target, options.precision)
    lowerings = {call: choose_lowering(call, *requested) for call in calls}
    outermost_ops = {node.op_type for node in model.traced.model.graph.node}
    for call, lowering in lowerings.items():
        # OpenVINO 2026.4 does not load the loop over blocks inside another loop
        if lowering == PORTABLE_IN_BLOCKS and call.op_type not in outermost_ops:
            lowerings[call] = PORTABLE
    reasons = {call: find_unsupported_reason(call, options.lowering, options.attention_target) for call in calls}
    return LoweredModel(
        model.traced,
        lowerings,
        options.attention_target,
        layers=model.layers,
        precision=options.precision,
        unsupported_reasons={call: reason for call, reason in reasons.items() if reason},
    )


def _find_owner(call: TracedCall, layers: Sequence[AttentionLayerInfo]) -> int:
    """Return the identity of the innermost layer around an attention pattern, or of the call if there is none."""
    path = build_layer_path(*call.layer.split("/"))
    outer_layers = [layer for layer in layers if f"/{layer.path}/" in f"/{path}/"]
    return max(outer_layers, key=lambda layer: len(layer.path)).layer_id if outer_layers else id(call)


def may_use_rotary_operator(lowering: str, attention_target: str, precision: str) -> bool:
    """Return True if a file with attention may have onnxruntime's operator `RotaryEmbedding`."""
    return (lowering, attention_target) == (ADAPTIVE, FOR_CPU) and precision != "float16"


def _fold_model_shapes(lowered: LoweredModel, inputs: Mapping[str, SymbolicShape], *, rotates: bool) -> LoweredModel:
    """Return a model with folded shape computations, and with rotary embeddings as one operator if `rotates`."""
    call_rules = {}
    for call in lowered.lowerings:
        order = [*call.shapes]
        call_rules[call.op_type] = AttentionShapeRule(
            order.index("queries"), order.index("values"), get_query_group_size(call)
        )
    passes: list[Pass] = [partial(fold_shapes, inputs=inputs, call_rules=call_rules)]
    # The operator needs a recent onnxruntime: only in files whose attention needs one too
    if rotates and not {*lowered.lowerings.values()}.isdisjoint((ADAPTIVE, FUSED)):
        passes.append(partial(apply_rules, rules=ONNXRUNTIME_RULES))
    traced = replace(lowered.traced, model=deepcopy(lowered.traced.model))
    run_passes(traced, passes)
    return replace(lowered, traced=traced)


def _may_use_attention_op(options: Options) -> bool:
    """Return True if the file may have the operator `Attention` in place of attention patterns."""
    is_for_cpu = options.attention_target == FOR_CPU
    has_opset = options.opset is None or options.opset >= FUSED_OPSET
    return (
        has_opset and options.lowering != PORTABLE and is_for_cpu and installed_runtime_supports(FUSED_OPSET, [FUSED])
    )
