"""Lowering `adaptive`: an `If` on the request's sizes picks the small or the large form.

For small sizes all pairs are computed at once: by the op `Attention` where the opset has it, else by plain ONNX. For
large ones nothing of the size of all scores is kept, and keys that do not take part are skipped: see `ragged.py`.
"""

import math

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import ADDITIVE, DISTANCE

from ..._onnx.lazy_values import Outputs, branch
from ..._onnxruntime_releases import FUSED_OPSET
from ..._thresholds import LARGE, NEVER, WINDOW_KEYS, From
from ..._tracing.attention_calls import Call
from ..additive_without_tanh import units
from ..body_inputs import Given
from ..forms import fused, multi_head_attention_op, portable, ragged, sliding_window

LOWEST_OPSET = 18


def body(given: Given) -> Outputs:
    """Return the outputs of a call that fits."""
    call, known = given.call, _is_large(given.call)
    if known is not None:
        return ragged.body(given) if known else small(given)
    if kind_of(call) != "examples":
        return _by_size(given, _least(call), small(given), ragged.body(given))
    full = _by_size(
        given, LARGE["flash"], small(given), multi_head_attention_op.over_all(given)
    )  # where no key is left out it has to pay
    return _by_size(given, _least(call), small(given), multi_head_attention_op.body(given, full))


def _by_size(given: Given, least: From, small: Outputs, large: Outputs) -> Outputs:
    """Return the outputs of one of two bodies."""
    is_small = (given.Tq - least.queries if least.queries else given.Tq) * given.Tk < [least.pairs]
    if least.keys:
        is_small = is_small | (given.Tk < [least.keys])
    return branch(is_small, small, large)


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
    return not (fused.refusal(call) or _is_large(call))


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
    if sliding_window.fits(call) and least.pairs != NEVER:
        wider, longest = least.each((WINDOW_KEYS / sliding_window.keys_of_block(call)) ** 2), _longest_of_all()
        pairs = min(wider.pairs, (longest - least.queries) * longest)
        keys = math.isqrt(pairs)  # blocks of queries cost the same, however many keys there are beside theirs
        return wider._replace(pairs=min(pairs, sliding_window.QUERIES * keys), keys=keys)
    return least if call.name != ADDITIVE else least.each(call.num_heads * units(call))


def _uses_operator(call: Call, opset: int) -> bool:
    return opset >= FUSED_OPSET and not fused.refusal(call)


def small(given: Given) -> Outputs:
    """Return the outputs in the form for small sizes."""
    return fused.body(given) if _uses_operator(given.call, given.opset) else portable.quick_body(given)


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
    """Return the number of positions in the longest golden cases for a call; see `edge_cases.py`."""
    if call.name == ADDITIVE:
        return _least(call).positions()
    return _longest_of_all()


def _longest_of_all() -> int:
    return max(least.positions() for kind, least in LARGE.items() if kind != ADDITIVE)
