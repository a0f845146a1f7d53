"""Interleaved latency measurement of onnxruntime sessions."""

import time
from collections.abc import Sequence
from typing import Any

from ._format.interruptible_session import run_session
from ._format.names import Arrays
from ._format.stop_signals import run_interruptibly


def measure_latencies(
    sessions: Sequence[Any], inputs: Arrays, seconds: float, *, warm_up_rounds: int, min_rounds: int, max_rounds: int
) -> tuple[list[Arrays], list[list[float]]]:
    """Run sessions alternately, and return for each session its outputs, and the seconds of each measured run.

    Args:
        sessions: Sessions of models with the same inputs. A round runs each of them once.
        inputs: Arrays by input name.
        seconds: Time for the measured rounds of all sessions together.
        warm_up_rounds: Rounds before the measurement, at least 1; the first run of a session allocates memory.
        min_rounds: Measured rounds, even if they take longer than `seconds`.
        max_rounds: Limit of the measured rounds.
    """
    for _ in range(warm_up_rounds):
        outputs = [run_session(session, inputs) for session in sessions]
    latencies: list[list[float]] = [[] for _ in sessions]
    pairs = list(zip(sessions, latencies, strict=True))

    def run_rounds(run_options: Any) -> None:
        end = time.perf_counter() + seconds
        while len(latencies[0]) < min_rounds or (time.perf_counter() < end and len(latencies[0]) < max_rounds):
            for session, session_latencies in pairs:
                start = time.perf_counter()
                session.run(None, inputs, run_options)
                session_latencies.append(time.perf_counter() - start)
            # The order is reversed after each round, since a session may profit from caches that its predecessor filled
            pairs.reverse()

    run_interruptibly(run_rounds)
    return outputs, latencies
