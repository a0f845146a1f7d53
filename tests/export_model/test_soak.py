"""One session with 10,000 requests from 16 threads: bitwise equal outputs and constant memory."""

import gc
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from small_bundle import draw_small_inputs

from keras_attn_export import load_bundle

THREADS, REQUESTS, DISTINCT = 16, 10_000, 60
MAX_GROWTH_BYTES = 24 * 2**20  # a leak of one output per request would be several times as large


def measure_resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


@pytest.mark.slow
def test_threads_get_equal_outputs_and_memory_stays_flat(exported):
    bundle = load_bundle(exported)
    rng = np.random.default_rng(0)
    requests = [draw_small_inputs(*rng.integers(1, 40, 3)) for _ in range(DISTINCT)]
    expected = [bundle.run(inputs) for inputs in requests]

    def run_requests(seed: int) -> int:
        order = random.Random(seed)
        differences = 0
        for _ in range(REQUESTS // THREADS):
            number = order.randrange(DISTINCT)
            outputs = bundle.run(requests[number])
            arrays = expected[number].items()
            differences += any(not np.array_equal(outputs[name], array) for name, array in arrays)
        return differences

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(run_requests, range(THREADS))) == 0  # the arena grows here to fit 16 requests
        gc.collect()
        before = measure_resident_bytes()
        assert sum(pool.map(run_requests, range(100, 100 + THREADS))) == 0
        gc.collect()
        assert measure_resident_bytes() - before < MAX_GROWTH_BYTES


def test_threads_share_one_session(exported):
    bundle = load_bundle(exported)
    with ThreadPoolExecutor(THREADS) as pool:
        sessions = list(pool.map(lambda _: bundle.session(), range(THREADS)))
    assert len({id(session) for session in sessions}) == 1
