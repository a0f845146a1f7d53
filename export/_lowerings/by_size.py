"""Which of two forms a call takes: that for small sizes or that for large ones, by the table in `_thresholds.py`.

A file decides when it runs, by the sizes of a request; where the model fixes them it is decided at export.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import ADDITIVE, DISTANCE

from .._thresholds import LARGE, NEVER, WINDOW_KEYS, From
from .._tracing.attention_calls import Call
from . import sliding_window
from .additive_terms import units
from .given import Given
from .operators import Outputs, branch


def body(given: Given, small: Callable[[Given], Outputs], large: Callable[[Given], Outputs]) -> Outputs:
    """Return the outputs of one of two bodies, as the sizes of a request tell, or those that the model fixes."""
    known = is_large(given.call)
    if known is not None:
        return large(given) if known else small(given)
    return either(given, least(given.call), small(given), large(given))


def either(given: Given, least: From, small: Outputs, large: Outputs) -> Outputs:
    """Return the outputs of one of two bodies, as the sizes of a request tell."""
    is_small = (given.Tq - least.queries if least.queries else given.Tq) * given.Tk < [least.pairs]
    if least.keys:
        is_small = is_small | (given.Tk < [least.keys])
    return branch(is_small, small, large)


def threshold(call: Call) -> From | None:
    """Return from where on a file takes the form for large sizes, or None where it does not decide when it runs."""
    return least(call) if least(call).pairs != NEVER and is_large(call) is None else None


def form(call: Call, small: str) -> str:
    """Return in words which form is taken when, that for small sizes in the words given."""
    rule, known = least(call), is_large(call)
    if rule.pairs == NEVER:
        return f"{small}, at all sizes"
    if known is not None:
        return f"{'ragged' if known else small}, by the sizes that the model fixes"
    queries = f"(queries - {rule.queries})" if rule.queries else "queries"
    or_keys = f" or keys < {rule.keys:,}" if rule.keys else ""
    return f"{small} while {queries} * keys < {rule.pairs:,}{or_keys}, else ragged"


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


def least(call: Call) -> From:
    """Return from where on a call takes the form for large sizes."""
    rule = LARGE[kind_of(call)]
    if sliding_window.fits(call) and rule.pairs != NEVER:
        wider, longest = rule.each((WINDOW_KEYS / sliding_window.keys_of_block(call)) ** 2), _longest_of_all()
        pairs = min(wider.pairs, (longest - rule.queries) * longest)
        return wider._replace(pairs=pairs, keys=math.isqrt(pairs))
    return rule if call.name != ADDITIVE else rule.each(call.num_heads * units(call))


def is_large(call: Call) -> bool | None:
    """Tell whether the form for large sizes is taken; None where only a request knows.

    It is not where one axis that the model fixes asks for more of the other than golden cases have.
    """
    queries, keys = call.shapes["queries"][-2], call.shapes["keys"][-2]
    rule, longest = least(call), _longest(call)
    if rule.pairs == NEVER or not rule.is_met(queries or longest, keys or longest):
        return False
    return None if queries is None or keys is None else True


def _longest(call: Call) -> int:
    """Return how many positions the longest golden cases have of a model with such a call; see `long_cases.py`."""
    if call.name == ADDITIVE:
        return least(call).positions()
    return _longest_of_all()


def _longest_of_all() -> int:
    return max(rule.positions() for kind, rule in LARGE.items() if kind != ADDITIVE)
