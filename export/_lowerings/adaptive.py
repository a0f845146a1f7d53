"""The `adaptive` lowering: a file that decides when it runs, by the sizes of a request, between two forms.

For small sizes all pairs are computed at once: by the op `Attention` where the opset has it, else by plain ONNX. For
large ones nothing of the size of all scores is kept, and keys that do not take part are skipped: see `ragged.py`.
"""

from __future__ import annotations

from .._options import FUSED_OPSET
from .._thresholds import LARGE
from .._tracing.attention_calls import Call
from . import by_size, flash, fused, plain, ragged
from .given import Given
from .operators import Outputs

LOWEST_OPSET = 18


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call."""
    return ragged.fits(call)


def body(given: Given) -> Outputs:
    """Return the outputs of a call that fits."""
    call = given.call
    if by_size.kind_of(call) != "examples" or by_size.is_large(call) is not None:
        return by_size.body(given, small, ragged.body)
    every_key = flash.over_all(given)
    full = by_size.either(given, LARGE["flash"], small(given), every_key)  # where no key is left out it has to pay
    return by_size.either(given, by_size.least(call), small(given), flash.body(given, full))


def form(call: Call, opset: int) -> str:
    """Return in words which form is taken when."""
    return by_size.form(call, "the operator `Attention`" if _uses_operator(call, opset) else "plain operators")


def has_use_of_fused(call: Call) -> bool:
    """Tell whether a call may be written by the operator of `fused`, where the opset has it."""
    return fused.fits(call) and not by_size.is_large(call)


def _uses_operator(call: Call, opset: int) -> bool:
    return opset >= FUSED_OPSET and fused.fits(call)


def small(given: Given) -> Outputs:
    """Return the outputs in the form for small sizes."""
    return fused.body(given) if _uses_operator(given.call, given.opset) else plain.quick_body(given)
