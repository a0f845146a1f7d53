"""Attend with masked inputs as they are; if the output is not finite, zero them and retry.

To hide them takes as long as attention itself where queries are few, and nearly always nothing leaks: a weight of zero
lets through what is finite. Where it is not, neither is the sum of the output, since zero times infinity is NaN and so
is NaN plus anything. Zeros for the queries without keys are put in only where there are such, if masks are of keys.
"""

from collections.abc import Callable

from .._onnx.lazy_values import LOWEST, Outputs, Value, branch, op
from .masks import Masks


def tried(masks: Masks, attention: Callable[[Value, Value], Outputs]) -> Outputs:
    """Return the outputs of a call that is masked.

    Args:
        masks: Its masks.
        attention: Maps keys and values to the outputs. A pair that takes no part has a weight of zero, unless its score
            is not finite.
    """
    given = masks.given
    first = attention(given.keys, given.values)
    again = masks.zeroed(attention(masks.hidden(given.keys), masks.hidden(given.values)))
    zeroed = masks.zeroed(first)
    if given.call.differs_by_query:
        return branch(_is_finite(zeroed), zeroed, again)
    return first_or_again(first, masks.all_see, zeroed, again)


def first_or_again(first: Outputs, all_see: Value, zeroed: Outputs, again: Outputs) -> Outputs:
    """Return `first` where it is finite and no query lacks keys, `zeroed` where it is finite, and `again` elsewhere."""
    is_finite = _is_finite(first)
    return branch(is_finite & all_see, first, branch(is_finite, zeroed, again))


def _is_finite(outputs: Outputs) -> Value:
    return op.ReduceL1(outputs[0], keepdims=0) <= -LOWEST
