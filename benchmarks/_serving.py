"""What makes a bundle fast to serve? A part of `batch.py`."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from _contestant import Arrays, Build, Contestant, Runner
from _harness import Options
from _plans import Plan
from _race import Case

from keras_attn_export import export_model, load_bundle

SIZE, HEADS, BATCH, REQUESTS = 256, 4, 8, 32
LONGEST, SHORTEST = 512, 16


def serving(options: Options) -> dict[str, Any]:
    """Race each piece of advice against what one does without it."""
    import _models

    scale = 16 if options.quick else 1
    bundle = export_model(_models.ours(Plan("block", SIZE // scale, HEADS)), options.work / "bundle", progress=False)
    rng = np.random.default_rng(0)
    lengths = rng.integers(SHORTEST // min(scale, 8), LONGEST // scale, REQUESTS)
    requests = {f"{n:02}": rng.standard_normal((length, SIZE // scale), "float32") for n, length in enumerate(lengths)}
    first = dict(list(requests.items())[:BATCH])
    alike = dict.fromkeys(first, requests["00"])
    batch = {"batch": BATCH}
    advice: list[tuple[str, Arrays, dict[str, Any], dict[str, Any]]] = [
        (f"a batch of {BATCH} with {options.threads} threads, instead of 1", first, batch, {**batch, "threads": 1}),
        (f"{BATCH} requests as one batch, instead of one by one", first, batch, {}),
        (f"{REQUESTS} requests in batches of {BATCH}, sorted by length, instead of unsorted", requests,
         {**batch, "sorted": True}, batch),
        (f"{BATCH} single requests from {options.threads} callers with 1 thread each, instead of one after the other",
         alike, {"callers": options.threads, "threads": 1}, {}),
        ("a bare session, instead of `Bundle.run`, which checks names, dtypes and shapes",
         alike, {}, {"checked": True}),
    ]  # fmt: skip
    cases = []
    for text, inputs, what, instead in advice:
        contestants = [
            Contestant(label, "_serving.server", {"bundle": str(bundle.path), "threads": options.threads, **how})
            for label, how in (("as advised", what), ("instead", instead))
        ]
        cases.append(options.race(Case(inputs, contestants, {"size": text}, "instead")))
    return {"cases": cases}


def server(spec: dict[str, Any]) -> Build:
    """A bundle that answers requests, as the options say."""
    options = spec["options"]
    size, callers = options.get("batch", 1), options.get("callers", 1)

    def build(requests: Arrays) -> Runner:
        order = sorted(requests, key=lambda name: (len(requests[name]) if "sorted" in options else 0, name))
        groups = [order[start : start + size] for start in range(0, len(order), size)]
        batches = [_padded([requests[name] for name in group]) for group in groups]
        bundle = load_bundle(options["bundle"])
        session = None if "checked" in options else bundle.session(threads=options["threads"])

        def run(batch: Arrays) -> np.ndarray:
            outputs = session.run(None, batch) if session else list(bundle.run(batch).values())
            return np.asarray(outputs[0])

        each = ThreadPoolExecutor(callers).map if callers > 1 else map

        def answer() -> list[np.ndarray]:
            outputs = [output for batch in batches for output in run(batch)]
            answers = {name: output[: len(requests[name])] for name, output in zip(order, outputs, strict=True)}
            return [answers[name] for name in requests]

        return Runner(lambda: list(each(run, batches)), answer)

    return build


def _padded(requests: list[np.ndarray]) -> Arrays:
    """Return requests as one batch, padded to the longest."""
    lengths = [len(each) for each in requests]
    padded = [np.pad(each, ((0, max(lengths) - len(each)), (0, 0))) for each in requests]
    return {"inputs": np.stack(padded), "valid_lens": np.array(lengths, "int32")}
