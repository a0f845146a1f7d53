"""One session, 16 threads, 10,000 requests: the same bits as one thread gives, and memory that stays flat."""

import gc
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from small_bundle import draw_small_inputs

from keras_attn_export import load_bundle

THREADS, REQUESTS, DISTINCT = 16, 10_000, 60
ALLOWED_GROWTH = 24 * 2**20  # bytes; a leak of one output a request would be several times that


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


@pytest.mark.slow
def test_threads_get_equal_outputs_and_memory_stays_flat(exported):
    bundle = load_bundle(exported)
    rng = np.random.default_rng(0)
    requests = [draw_small_inputs(*rng.integers(1, 40, 3)) for _ in range(DISTINCT)]
    alone = [bundle.run(inputs) for inputs in requests]

    def work(seed: int) -> int:
        order = random.Random(seed)
        different = 0
        for _ in range(REQUESTS // THREADS):
            number = order.randrange(DISTINCT)
            outputs = bundle.run(requests[number])
            different += any(not np.array_equal(outputs[name], alone[number][name]) for name in alone[number])
        return different

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(work, range(THREADS))) == 0  # and the arena has grown to what 16 requests at once need
        gc.collect()
        before = resident_bytes()
        assert sum(pool.map(work, range(100, 100 + THREADS))) == 0
        gc.collect()
        assert resident_bytes() - before < ALLOWED_GROWTH


def test_threads_share_one_session(exported):
    bundle = load_bundle(exported)
    with ThreadPoolExecutor(THREADS) as pool:
        sessions = list(pool.map(lambda _: bundle.session(), range(THREADS)))
    assert len({id(session) for session in sessions}) == 1
