"""How attention becomes ONNX: one file a lowering, and the choice among them.

Each gives a body to the function that stands for a call of an attention layer. That of plain ONNX goes in its
place.
"""

from __future__ import annotations

import onnx

from .._options import ADAPTIVE, FUSED_OPSET, PORTABLE, runs_here
from .._tracing.attention_calls import Call
from . import adaptive, fused, plain, ragged
from .text import function

BODIES = {PORTABLE: plain, "fused": fused, "ragged": ragged, ADAPTIVE: adaptive}

FORMS = {
    PORTABLE: "plain operators",
    "fused": "the operator `Attention`",
    "ragged": "over the keys that take part, in blocks",
}


def lowering_of(call: Call, lowering: str) -> str:
    """Return `lowering` where it has a body for a call, else `"portable"`."""
    return lowering if lowering in BODIES and BODIES[lowering].fits(call) else PORTABLE


def candidates(call: Call) -> list[str]:
    """Return the lowerings that have a body for a call, `"portable"` first."""
    return [name for name, each in BODIES.items() if each.fits(call)]


def lowest_opset(lowering: str) -> int:
    """Return the lowest opset at which a lowering can be written."""
    return int(BODIES[lowering].LOWEST_OPSET)


def opset_of(call: Call, lowering: str) -> int:
    """Return the opset at which a call is best written in a lowering, with the onnxruntime that is installed."""
    if lowering == ADAPTIVE and adaptive.has_use_of_fused(call) and runs_here(FUSED_OPSET, ["fused"]):
        return FUSED_OPSET
    return lowest_opset(lowering)


def function_of(call: Call, lowering: str, opset: int) -> onnx.FunctionProto:
    """Return the ONNX function of a call in a lowering that has a body for it."""
    body = adaptive.body(call, opset) if lowering == ADAPTIVE else BODIES[lowering].body(call)
    return function(call, body, opset)


def form_of(call: Call, lowering: str, opset: int) -> str:
    """Return in words how a call is written in a lowering."""
    return adaptive.form(call, opset) if lowering == ADAPTIVE else FORMS[lowering]
