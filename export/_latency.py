"""Interleaved latency measurement of onnxruntime sessions."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._format.interruptible_session import run_session
from ._format.names import Arrays
from ._format.stop_signals import interruptible


def measure_interleaved(
    sessions: Sequence[Any],
    inputs: Mapping[str, np.ndarray],
    seconds: float,
    *,
    warm_up_rounds: int,
    min_rounds: int,
    max_rounds: int,
) -> tuple[list[Arrays], list[list[float]]]:
    """Run sessions in turns; return the outputs of each, and the seconds that each of its runs took.

    Who begins changes each round, so that neither always runs in the other's caches.

    Args:
        sessions: The sessions.
        inputs: Arrays by input name.
        seconds: How long to run, all together.
        warm_up: How many rounds come before, which are not timed; the first run allocates.
        fewest: How many rounds are made however long they take.
        most: How many are made at most.

    Raises:
        ExportError: A model fails on the inputs.
    """
    for _ in range(warm_up_rounds):
        outputs = [run_session(session, inputs) for session in sessions]
    latencies: list[list[float]] = [[] for _ in sessions]
    pairs = list(zip(sessions, latencies, strict=True))

    def run_rounds(options: Any) -> None:
        end = time.perf_counter() + seconds
        while len(latencies[0]) < min_rounds or (time.perf_counter() < end and len(latencies[0]) < max_rounds):
            for session, session_latencies in pairs:
                start = time.perf_counter()
                session.run(None, inputs, options)
                session_latencies.append(time.perf_counter() - start)
            pairs.reverse()

    interruptible(run_rounds)
    return outputs, latencies
