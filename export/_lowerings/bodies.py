"""How attention becomes ONNX: one file a lowering, and the choice among them.

Plain primitives are what tf2onnx writes, with its faults mended in `_tracing/tf2onnx_fixes.py`. The others
give a body to the function that stands for a call of an attention layer.
"""

from __future__ import annotations

import onnx

from .._options import PORTABLE
from .._tracing.attention_calls import Call
from . import fused, ragged
from .text import function

BODIES = {"fused": fused, "ragged": ragged}


def lowering_of(call: Call, lowering: str) -> str:
    """Return `lowering` where it has a body for a call, else `"portable"`."""
    return lowering if lowering in BODIES and BODIES[lowering].fits(call) else PORTABLE


def candidates(call: Call) -> list[str]:
    """Return the lowerings that have a body for a call, beside `"portable"`."""
    return [name for name, each in BODIES.items() if each.fits(call)]


def lowest_opset(lowering: str) -> int:
    """Return the lowest opset at which a lowering other than `"portable"` can be written."""
    return int(BODIES[lowering].LOWEST_OPSET)


def function_of(call: Call, lowering: str, opset: int) -> onnx.FunctionProto:
    """Return the ONNX function of a call in a lowering that has a body for it."""
    return function(call, BODIES[lowering].body(call), opset)
