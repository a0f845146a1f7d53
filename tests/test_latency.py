"""Latency of sessions that run in turns."""

from types import SimpleNamespace

from keras_attn_export._latency import measure_latencies


def test_sessions_take_turns_within_bounds_of_time_and_runs():
    order = []
    sessions = [
        SimpleNamespace(get_outputs=lambda: [], run=lambda *_, name=name: order.append(name) or []) for name in "ab"
    ]
    outputs, durations = measure_latencies(sessions, {}, 1e-9, warm_up_rounds=3, min_rounds=5, max_rounds=100)
    assert outputs == [{}, {}]
    assert [len(runs) for runs in durations] == [5, 5]
    assert "".join(order) == 3 * "ab" + "abbaabbaab"
    _, durations = measure_latencies(sessions, {}, 10.0, warm_up_rounds=1, min_rounds=1, max_rounds=7)
    assert [len(runs) for runs in durations] == [7, 7]
