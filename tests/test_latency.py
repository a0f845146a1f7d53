"""Turns and durations of timed sessions."""

from types import SimpleNamespace

from keras_attn_export._latency import timed_in_turns


def test_sessions_take_turns_within_bounds_of_time_and_runs():
    order = []
    sessions = [
        SimpleNamespace(get_outputs=lambda: [], run=lambda *_, name=name: order.append(name) or []) for name in "ab"
    ]
    outputs, taken = timed_in_turns(sessions, {}, 1e-9, warm_up=3, fewest=5, most=100)
    assert outputs == [{}, {}]
    assert [len(each) for each in taken] == [5, 5]
    assert "".join(order) == 3 * "ab" + "abbaabbaab"
    _, taken = timed_in_turns(sessions, {}, 10.0, warm_up=1, fewest=1, most=7)
    assert [len(each) for each in taken] == [7, 7]
