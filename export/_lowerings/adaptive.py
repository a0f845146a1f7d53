"""The `adaptive` lowering: a file that decides when it runs, by the sizes of a request, between two forms.

For small sizes all pairs are computed at once: by the op `Attention` where the opset has it, else by plain ONNX. For
large ones nothing of the size of all scores is kept, and keys that do not take part are skipped: see `ragged.py`.
"""

from __future__ import annotations

import math

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import ADDITIVE, DISTANCE

from .._options import FUSED_OPSET
from .._thresholds import LARGE, NEVER, WINDOW_KEYS, From
from .._tracing.attention_calls import Call
from . import additive, flash, fused, plain, ragged, windows
from .text import chosen

LOWEST_OPSET = 18


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call."""
    return ragged.fits(call)


def body(call: Call, opset: int) -> str:
    """Return the body of the ONNX function of a call that fits."""
    known = _is_large(call)
    if known is not None:
        return ragged.body(call) if known else small(call, opset, "small")
    large = ragged.body(call, "large")
    if kind_of(call) == "examples":  # where no key is left out it has to pay by itself
        full = _by_size(call, LARGE["flash"], small(call, opset, "full"), flash.over_all(call), "full")
        large = flash.body(call, "large", full)
    return _by_size(call, _least(call), small(call, opset, "small"), large, "adaptive")


def _by_size(call: Call, least: From, small: str, large: str, name: str) -> str:
    """Lines that define the outputs of a call by one of two bodies; `name` begins all names in them."""
    return f"""
        {name}_not_counted = Constant <value_ints = [{least.queries}]> ()
        {name}_counted = {f"Sub (Tq, {name}_not_counted)" if least.queries else "Identity (Tq)"}
        {name}_pairs = Mul ({name}_counted, Tk)
        {name}_enough = Constant <value_ints = [{least.pairs}]> ()
        {name}_is_few = Less ({name}_pairs, {name}_enough)
        {_few_keys(least, name)}
        {chosen(call, f"{name}_is_small", small, large, name)}
    """


def _few_keys(least: From, name: str) -> str:
    if not least.keys:
        return f"{name}_is_small = Identity ({name}_is_few)\n"
    return f"""
        {name}_enough_keys = Constant <value_ints = [{least.keys}]> ()
        {name}_is_few_keys = Less (Tk, {name}_enough_keys)
        {name}_is_small = Or ({name}_is_few, {name}_is_few_keys)
    """


def threshold(call: Call) -> From | None:
    """Return from where on a file takes the form for large sizes, or None where it does not decide when it runs."""
    return _least(call) if _least(call).pairs != NEVER and _is_large(call) is None else None


def form(call: Call, opset: int) -> str:
    """Return in words which form is taken when."""
    small = "the operator `Attention`" if _uses_operator(call, opset) else "plain operators"
    least, known = _least(call), _is_large(call)
    if least.pairs == NEVER:
        return f"{small}, at all sizes"
    if known is not None:
        return f"{'ragged' if known else small}, by the sizes that the model fixes"
    queries = f"(queries - {least.queries})" if least.queries else "queries"
    or_keys = f" or keys < {least.keys:,}" if least.keys else ""
    return f"{small} while {queries} * keys < {least.pairs:,}{or_keys}, else ragged"


def has_use_of_fused(call: Call) -> bool:
    """Tell whether a call may be written by the operator of `fused`, where the opset has it."""
    return fused.fits(call) and not _is_large(call)


def kind_of(call: Call) -> str:
    """Return the kind of a call, by which it is decided: a key of `LARGE`."""
    if call.name == ADDITIVE:
        return "additive"
    if call.name == DISTANCE:
        return "distance"
    if call.returns_weights or call.normalizer != SOFTMAX:
        return "weights"
    if call.has_pair_mask or call.has_bias:
        return "pairs"
    if call.has_query_lengths:
        return "query lengths"
    if call.band != (None, None):
        return "causal" if None in call.band else "window"
    return "examples" if call.has_lengths or call.has_keys_mask else "flash"


def _least(call: Call) -> From:
    least = LARGE[kind_of(call)]
    if windows.fits(call) and least.pairs != NEVER:
        wider, longest = least.each((WINDOW_KEYS / windows.keys_of_block(call)) ** 2), _longest_of_all()
        pairs = min(wider.pairs, (longest - least.queries) * longest)
        return wider._replace(pairs=pairs, keys=math.isqrt(pairs))
    return least if call.name != ADDITIVE else least.each(call.num_heads * additive.units(call))


def _uses_operator(call: Call, opset: int) -> bool:
    return opset >= FUSED_OPSET and fused.fits(call)


def small(call: Call, opset: int, name: str) -> str:
    """Return the body for small sizes; `name` begins the names of its branches."""
    return fused.body(call, name) if _uses_operator(call, opset) else plain.quick_body(call, name)


def _is_large(call: Call) -> bool | None:
    """Tell whether the form for large sizes is taken; None where only a request knows.

    It is not where one axis that the model fixes asks for more of the other than golden cases have.
    """
    queries, keys = call.shapes["queries"][-2], call.shapes["keys"][-2]
    least, longest = _least(call), _longest(call)
    if least.pairs == NEVER or not least.is_met(queries or longest, keys or longest):
        return False
    return None if queries is None or keys is None else True


def _longest(call: Call) -> int:
    """Return how many positions the longest golden cases have of a model with such a call; see `long_cases.py`."""
    if call.name == ADDITIVE:
        return _least(call).positions()
    return _longest_of_all()


def _longest_of_all() -> int:
    return max(least.positions() for kind, least in LARGE.items() if kind != ADDITIVE)
