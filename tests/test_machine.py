"""How long runs take."""

from functools import partial

from keras_attn_export._machine import in_turns


def test_turns_alternate_and_time_is_bounded():
    order = []
    taken = in_turns([partial(order.append, name) for name in "ab"], 1e-9, warm_up=3, fewest=5, most=100)
    assert [len(times) for times in taken] == [5, 5]
    assert "".join(order[6:]) == "abbaabbaab"
