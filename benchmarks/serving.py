"""What makes a bundle fast to serve: threads, batches of like lengths, sessions beside each other, bound outputs?"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import _harness
import _models  # noqa: F401 - sees to what TensorFlow says before it is imported
import keras
import numpy as np
from _plans import rest_of_block
from _race import PAUSE
from _stats import spread

from keras_attn import DotProductAttention, MultiHeadAttention
from keras_attn_export import Bundle, export_model

SIZE, HEADS, BATCH, REQUESTS = 256, 4, 8, 32
LONGEST, SHORTEST = 512, 16
ROUNDS = 15

Run = Callable[[], Any]


def measure(options: _harness.Options) -> dict[str, Any]:
    scale = 16 if options.quick else 1
    bundle = export_model(_block(SIZE // scale), options.work / "bundle", progress=False)
    rng = np.random.default_rng(0)
    lengths = rng.integers(SHORTEST // min(scale, 8), LONGEST // scale, REQUESTS)
    requests = [rng.standard_normal((length, SIZE // scale), "float32") for length in lengths]
    one, all_of = bundle.session(threads=1), bundle.session(threads=options.threads)
    rounds = 3 if options.quick else ROUNDS
    short = [_batch(requests[:1])] * BATCH

    def row(advice: str, what: Run, instead: Run) -> dict[str, Any]:
        return {"advice": advice, **_compared(what, instead, rounds)}

    with ThreadPoolExecutor(options.threads) as pool:
        rows = [
            row(
                f"{options.threads} threads for a batch of {BATCH}, not 1",
                lambda: all_of.run(None, _batch(requests[:BATCH])),
                lambda: one.run(None, _batch(requests[:BATCH])),
            ),
            row(
                f"{BATCH} requests as one batch, not one by one",
                lambda: all_of.run(None, _batch(requests[:BATCH])),
                lambda: [all_of.run(None, _batch([each])) for each in requests[:BATCH]],
            ),
            row(
                f"{REQUESTS} requests sorted by length before they are cut into batches of {BATCH}",
                lambda: _run_all(all_of, sorted(requests, key=len)),
                lambda: _run_all(all_of, requests),
            ),
            row(
                f"{BATCH} single requests by {options.threads} callers at once, 1 thread each, not one after the other",
                lambda: list(pool.map(lambda inputs: one.run(None, inputs), short)),
                lambda: [all_of.run(None, inputs) for inputs in short],
            ),
            row(
                "outputs bound to arrays that are there, not made anew",
                _bound(all_of, _batch(requests[:BATCH])),
                lambda: all_of.run(None, _batch(requests[:BATCH])),
            ),
        ]
    rows.append(_cost_of_run(bundle, _batch(requests[:1]), rounds))
    return {"title": "Serving", "cases": [], "rows": rows, "bars": []}


def _block(size: int) -> keras.Model:
    """Return a Transformer block over sequences with lengths."""
    x, lengths = keras.Input((None, size), name="x"), keras.Input((), dtype="int32", name="lengths")
    attended = MultiHeadAttention(DotProductAttention(), HEADS)(x, x, x, lengths)
    return keras.Model([x, lengths], rest_of_block(x, attended))


def _batch(requests: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Return requests as one batch, padded to the longest."""
    lengths = [len(each) for each in requests]
    padded = [np.pad(each, ((0, max(lengths) - len(each)), (0, 0))) for each in requests]
    return {"x": np.stack(padded), "lengths": np.array(lengths, "int32")}


def _run_all(session: Any, requests: list[np.ndarray]) -> None:
    for start in range(0, len(requests), BATCH):
        session.run(None, _batch(requests[start : start + BATCH]))


def _bound(session: Any, inputs: dict[str, np.ndarray]) -> Run:
    binding = session.io_binding()
    (output,) = session.get_outputs()
    result = session.run(None, inputs)[0]
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output(output.name, "cpu", 0, result.dtype, result.shape, result.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def _compared(what: Run, instead: Run, rounds: int) -> dict[str, Any]:
    """Return how long both take, and the ratio within each round: who begins changes."""
    taken: dict[Run, list[float]] = {what: [], instead: []}
    order = [what, instead]
    for run in order:
        run()
    for _ in range(rounds):
        for run in order:
            run()  # the first finds the caches as the other left them
            start = time.perf_counter()
            run()
            taken[run].append((time.perf_counter() - start) * 1e3)
            time.sleep(PAUSE)
        order.reverse()
    ratios = [slow / fast for fast, slow in zip(taken[what], taken[instead], strict=True)]
    return {"ms": spread(taken[what]), "instead": spread(taken[instead]), "faster": spread(ratios)}


def _cost_of_run(bundle: Bundle, inputs: dict[str, np.ndarray], rounds: int) -> dict[str, Any]:
    """Return what `Bundle.run` takes beside a bare session, which checks nothing."""
    session = bundle.session()
    found = _compared(lambda: session.run(None, inputs), lambda: bundle.run(inputs), 4 * rounds)
    return {"advice": "a bare session, not `Bundle.run`, which checks names, dtypes and shapes", **found}


if __name__ == "__main__":
    _harness.run("serving", __doc__, measure)
