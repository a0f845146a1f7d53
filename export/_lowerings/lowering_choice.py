"""Choose a lowering for each attention call and build its ONNX function."""

from functools import partial

import onnx

from .._lowering_names import (
    ADAPTIVE,
    ADAPTIVE_GPU,
    FOR_ANY,
    FOR_CPU,
    FOR_CUDA,
    PLAIN_OPERATORS,
    PORTABLE,
    PORTABLE_IN_BLOCKS,
)
from .._onnxruntime_releases import FUSED_OPSET, installed_runtime_supports
from .._options import FLOAT32
from .._tracing.attention_calls import TracedCall
from .attention_function import build_call_function
from .forms import adaptive, adaptive_gpu, additive_batched, fused, portable, portable_additive, ragged

BODIES = {
    ADAPTIVE: adaptive,
    PORTABLE: portable,
    "fused": fused,
    ADAPTIVE_GPU: adaptive_gpu,
    PORTABLE_IN_BLOCKS: portable_additive,
}

FORM_TEXTS = {
    PORTABLE: PLAIN_OPERATORS,
    "fused": "the operator `Attention`",
    ADAPTIVE_GPU: "the whole batch, in a form chosen by sizes",
    PORTABLE_IN_BLOCKS: f"{PLAIN_OPERATORS}, in query blocks if there are many scores",
}


def choose_lowering(call: TracedCall, lowering: str, attention_target: str = FOR_CPU, precision: str = FLOAT32) -> str:
    """Return the requested lowering or its variant for a target; `"portable"` if the call is unsupported."""
    if find_unsupported_reason(call, lowering, attention_target):
        return PORTABLE
    if lowering == ADAPTIVE:
        # On a GPU a loop over examples waits for the device in each iteration, so the whole batch is computed.
        # Files for any runtime have no `If` on sizes.
        return {FOR_CUDA: ADAPTIVE_GPU, FOR_ANY: PORTABLE}.get(attention_target, ADAPTIVE)
    if (lowering, attention_target, precision) == (PORTABLE, FOR_CPU, FLOAT32) and portable_additive.supports(call):
        return PORTABLE_IN_BLOCKS
    return lowering


def find_unsupported_reason(call: TracedCall, lowering: str, attention_target: str = FOR_CPU) -> str:
    """Return the reason if a requested lowering does not support a call, or an empty text."""
    if lowering == "fused":
        is_for_cuda = attention_target == FOR_CUDA
        return adaptive_gpu.find_unsupported_reason(call) if is_for_cuda else fused.find_unsupported_reason(call)
    return ragged.find_unsupported_reason(call) if (lowering, attention_target) == (ADAPTIVE, FOR_CPU) else ""


def get_min_opset(lowering: str) -> int:
    """Return the lowest opset that has all operators of a lowering."""
    return int(BODIES[lowering].LOWEST_OPSET)


def get_preferred_opset(call: TracedCall, lowering: str) -> int:
    """Return the opset of the fastest form of a call in a lowering that the installed onnxruntime runs."""
    can_use = {ADAPTIVE: adaptive.can_use_attention_op, ADAPTIVE_GPU: adaptive_gpu.fits_attention_op}.get(lowering)
    if can_use is not None and can_use(call) and installed_runtime_supports(FUSED_OPSET, [lowering]):
        return FUSED_OPSET
    return get_min_opset(lowering)


def build_lowered_function(
    call: TracedCall,
    lowering: str,
    opset: int,
    attention_target: str = FOR_CPU,
    *,
    force_large_form: bool = False,
    precision: str = FLOAT32,
) -> onnx.FunctionProto:
    """Return the ONNX function of a call in the lowering that `choose_lowering` returned.

    `force_large_form` uses the large form at all sizes if a lowering, except `adaptive`, chooses by size.
    """
    for_device = attention_target != FOR_CPU
    body = fused.build_body_with_zeroed_inputs if lowering == "fused" and for_device else BODIES[lowering].build_body
    if lowering == ADAPTIVE_GPU:
        limits = adaptive_gpu.choose_limits(precision, force_large_form=force_large_form)
        body = partial(adaptive_gpu.build_body, limits=limits)
    if lowering == PORTABLE_IN_BLOCKS and force_large_form:
        body = additive_batched.build_body
    return build_call_function(call, body, opset, for_device=for_device)


def describe_form(call: TracedCall, lowering: str, opset: int) -> str:
    """Return the text of the manifest that describes the form of a call in a lowering."""
    return adaptive.describe_form(call, opset) if lowering == ADAPTIVE else FORM_TEXTS[lowering]
