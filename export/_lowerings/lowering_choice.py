"""Choose a lowering for each attention call and build its ONNX function."""

from functools import partial

import onnx

from .._lowering_names import ADAPTIVE, BATCHED, FOR_ANY, FOR_CPU, FOR_CUDA, IN_BLOCKS, PLAIN, PORTABLE
from .._onnxruntime_releases import FUSED_OPSET, runs_here
from .._options import FLOAT32
from .._tracing.attention_calls import Call
from .attention_function import function
from .forms import adaptive, adaptive_gpu, additive_batched, fused, portable, portable_additive, ragged

BODIES = {ADAPTIVE: adaptive, PORTABLE: portable, "fused": fused, BATCHED: adaptive_gpu, IN_BLOCKS: portable_additive}

FORMS = {
    PORTABLE: PLAIN,
    "fused": "the operator `Attention`",
    BATCHED: "all examples at once, as sizes ask for it",
    IN_BLOCKS: f"{PLAIN}, of many pairs in blocks of queries",
}


def lowering_of(call: Call, lowering: str, written_for: str = FOR_CPU, precision: str = FLOAT32) -> str:
    """Return the lowering of a call if one is requested: `"portable"` if the requested one has no body for the call.

    For a GPU, `adaptive` is `batched`: loops over examples would wait for the device at each iteration. For runtimes
    with the standard operators only, no sizes decide.

    Args:
        call: The call.
        lowering: The requested lowering.
        written_for: The kind of device, as in `Provider`.
        precision: The precision of the file; in others than float32, `portable` computes all pairs at once.
    """
    if refusal(call, lowering, written_for):
        return PORTABLE
    if lowering == ADAPTIVE:
        return {FOR_CUDA: BATCHED, FOR_ANY: PORTABLE}.get(written_for, ADAPTIVE)
    if (lowering, written_for, precision) == (PORTABLE, FOR_CPU, FLOAT32) and portable_additive.fits(call):
        return IN_BLOCKS
    return lowering


def refusal(call: Call, lowering: str, written_for: str = FOR_CPU) -> str:
    """Return the reason if a requested lowering has no body for a call, or an empty text."""
    if lowering == "fused":
        return adaptive_gpu.fused_refusal(call) if written_for == FOR_CUDA else fused.refusal(call)
    return ragged.refusal(call) if (lowering, written_for) == (ADAPTIVE, FOR_CPU) else ""


def lowest_opset(lowering: str) -> int:
    """Return the lowest opset at which a lowering can be written."""
    return int(BODIES[lowering].LOWEST_OPSET)


def opset_of(call: Call, lowering: str) -> int:
    """Return the opset at which a call is best written in a lowering, with the onnxruntime that is installed."""
    uses_fused = {ADAPTIVE: adaptive.has_use_of_fused, BATCHED: adaptive_gpu.uses_fused}.get(lowering)
    if uses_fused is not None and uses_fused(call) and runs_here(FUSED_OPSET, [lowering]):
        return FUSED_OPSET
    return lowest_opset(lowering)


def function_of(
    call: Call,
    lowering: str,
    opset: int,
    written_for: str = FOR_CPU,
    *,
    only_large: bool = False,
    precision: str = FLOAT32,
) -> onnx.FunctionProto:
    """Return the ONNX function of a call in a lowering that has a body for it.

    Args:
        call: The call.
        lowering: The lowering.
        opset: That of the function.
        written_for: What it is to run on, as `Provider` has it.
        only_large: Whether what decides by sizes, but `adaptive`, takes its form for large ones at all sizes.
        precision: That of the file.
    """
    for_device = written_for != FOR_CPU
    body = fused.hiding_body if lowering == "fused" and for_device else BODIES[lowering].body
    if lowering == BATCHED:
        body = partial(adaptive_gpu.body, limits=adaptive_gpu.limits_of(precision, only_large=only_large))
    if lowering == IN_BLOCKS and only_large:
        body = additive_batched.body
    return function(call, body, opset, for_device=for_device)


def form_of(call: Call, lowering: str, opset: int) -> str:
    """Return in words how a call is written in a lowering."""
    return adaptive.form(call, opset) if lowering == ADAPTIVE else FORMS[lowering]
