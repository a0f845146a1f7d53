"""Compute attention with keys and values as they are, and once more with zeros for what no query sees if that leaked.

To hide them takes as long as attention itself where queries are few, and nearly always nothing leaks: a weight of zero
lets through what is finite. Where it is not, neither is the sum of the output, since zero times infinity is NaN and so
is NaN plus anything. Zeros for the queries without keys are put in only where there are such, if masks are of keys.
"""

from __future__ import annotations

from collections.abc import Callable

from .._tracing.attention_calls import Call
from .masks import all_of, by_lengths_alone, hidden, zeros_without_keys
from .text import chosen

Attention = Callable[[str, str, str], str]


def tried(call: Call, attention: Attention, name: str, seen: str = "") -> str:
    """Lines that define the outputs of a call that is masked; they read what `rows` and `all_see` give.

    Args:
        call: The call.
        attention: Gives lines of `{form}_output`, and of `{form}_weights` if the call returns them, from the names of
            keys and values, and from `form`. A pair that takes no part has a weight of zero, unless its score is not
            finite.
        name: What the names of the branches begin with.
        seen: Lines that `hidden` needs beside those that are there.
    """
    again = f"""
        {seen}
        {hidden(call, "keys", "values")}
        {attention("hidden_keys", "hidden_values", "again")}
        {_selected(call, "again", "")}
    """
    if call.differs_by_query:
        return f"""
            {attention("keys", "values", "first")}
            {_selected(call, "first", "selected_")}
            {_finite("selected_output")}
            {chosen(call, "is_finite", same(call, "selected"), again, name)}
        """
    return attention("keys", "values", "first") + first_or_again(call, again, name)


def first_or_again(call: Call, again: str, name: str) -> str:
    """Lines that define the outputs of a call by what is there of the form `first`.

    Args:
        call: The call.
        again: Lines that define them where those of `first` are not finite.
        name: What the names of the branches begin with.
    """
    leaked_or_not = chosen(call, "is_finite", _selected(call, "first", ""), again, f"{name}_else")
    return f"""
        {_finite("first_output")}
        is_right = And (is_finite, all_see)
        {chosen(call, "is_right", same(call, "first"), leaked_or_not, name)}
    """


def all_see(call: Call) -> str:
    """Lines that give `all_see`, whether no query lacks keys, where masks are of keys; they read what `rows` gives."""
    if call.differs_by_query:
        return ""
    return _LENGTHS_ABOVE_0 if by_lengths_alone(call) else all_of("all_see", "row_sees")


def same(call: Call, form: str) -> str:
    """Lines that define the outputs of a call as those of a form."""
    return "".join(f"{name} = Identity ({form}_{name})\n" for name in call.outputs)


def _selected(call: Call, form: str, prefix: str) -> str:
    return "".join(zeros_without_keys(call, f"{prefix}{name}", f"{form}_{name}") for name in call.outputs)


def _finite(output: str) -> str:
    return f"""
        sum_of_sizes = ReduceL1 <keepdims = 0> ({output})
        highest = Constant <value_float = 3.4028234e38> ()
        is_finite = LessOrEqual (sum_of_sizes, highest)
    """


_LENGTHS_ABOVE_0 = """
    shortest_length = ReduceMin <keepdims = 0> (lengths)
    all_see = Greater (shortest_length, zero_scalar)
"""
