"""Choose a lowering for each attention call and build its ONNX function.

Each gives a body to the function that stands for a call of an attention layer. That of plain ONNX goes in its
place.
"""

from __future__ import annotations

from functools import partial

import onnx

from .._lowering_names import ADAPTIVE, BATCHED, FOR_ANY, FOR_CPU, FOR_CUDA, IN_BLOCKS, PORTABLE
from .._onnxruntime_releases import FUSED_OPSET, runs_here
from .._options import FLOAT32
from .._tracing.attention_calls import Call
from .attention_function import function
from .forms import adaptive, adaptive_gpu, additive_batched, fused, portable, portable_additive

BODIES = {ADAPTIVE: adaptive, PORTABLE: portable, "fused": fused, BATCHED: adaptive_gpu, IN_BLOCKS: portable_additive}

FORMS = {
    PORTABLE: "plain operators",
    "fused": "the operator `Attention`",
    BATCHED: "all examples at once, as sizes ask for it",
    IN_BLOCKS: "plain operators, of many pairs in blocks of queries",
}


def lowering_of(call: Call, lowering: str, written_for: str = FOR_CPU, precision: str = FLOAT32) -> str:
    """Return the lowering that a call gets where one was asked for: `"portable"` where that has no body for it.

    For a GPU, `adaptive` is `batched`: loops over examples would wait for the device at each turn. For whatever has the
    standard operators nothing decides by sizes.

    Args:
        call: The call.
        lowering: What was asked for.
        written_for: What it is to run on, as `Provider` has it.
        precision: That of the file; where it is another than float32, `portable` takes all pairs at once.
    """
    meant = lowering
    if lowering == ADAPTIVE:
        meant = {FOR_CUDA: BATCHED, FOR_ANY: PORTABLE}.get(written_for, ADAPTIVE)
    elif (lowering, written_for, precision) == (PORTABLE, FOR_CPU, FLOAT32):
        meant = IN_BLOCKS
    return meant if _fits(call, meant, written_for) else PORTABLE


def _fits(call: Call, lowering: str, written_for: str) -> bool:
    if (lowering, written_for) == ("fused", FOR_CUDA):
        return adaptive_gpu.uses_fused(call)
    return bool(BODIES[lowering].fits(call))


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
    if lowering == BATCHED and (only_large or precision == "float16"):
        body = partial(adaptive_gpu.body, at_once=adaptive_gpu.NOTHING if only_large else adaptive_gpu.IN_FLOAT16)
    if lowering == IN_BLOCKS and only_large:
        body = additive_batched.body
    return function(call, body, opset, for_device=for_device)


def form_of(call: Call, lowering: str, opset: int) -> str:
    """Return in words how a call is written in a lowering."""
    return adaptive.form(call, opset) if lowering == ADAPTIVE else FORMS[lowering]
