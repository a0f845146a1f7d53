"""How many rows a second does `predict` run, against a plain loop, and when does Ray pay?"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _harness
import _models  # noqa: F401 - sees to what TensorFlow says before it is imported
import _rows
import keras
from _process import Contestant
from _race import Case, race
from _stats import bar
from keras import layers

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn_export import export_model
from keras_attn_export._batch.job import BATCH_ROWS

FILES = 8
RAY_ROWS = 240_000  # so many that what is left after the start stands out of the noise of it
BATCH_SIZES = (8, 16, 32, 64, 128)
MACHINES = (2, 4, 10)
FASTER = 3.0  # than a plain loop, on two cores
ROUNDS, RAY_ROUNDS = 5, 3

LOOP, OURS = "a plain loop", "`predict`"


def additive() -> keras.Model:
    """Return additive attention of one query over many keys."""
    queries = keras.Input((1, _rows.KEY_SIZE), name="queries")
    keys, values = (keras.Input((None, size), name=name) for name, size in _SEQUENCES)
    lengths = keras.Input((), dtype="int32", name="valid_lens")
    context, weights = AdditiveAttention(32)(queries, keys, values, lengths, return_attention_scores=True)
    return keras.Model([queries, keys, values, lengths], {"context": context, "weights": weights})


_SEQUENCES = (("keys", _rows.KEY_SIZE), ("values", _rows.VALUE_SIZE))


def tagger() -> keras.Model:
    """Return self-attention over words, which gives each of them a few numbers."""
    words = keras.Input((None,), dtype="int32", name="words")
    lengths = keras.Input((), dtype="int32", name="valid_lens")
    x = layers.Embedding(_rows.VOCABULARY, 32)(words)
    x = layers.LayerNormalization()(x + DotProductAttention()(x, x, x, lengths))
    return keras.Model([words, lengths], {"tags": layers.Dense(8)(x)})


@dataclass(frozen=True)
class Work:
    """A model, and how many rows it runs."""

    name: str
    model: Callable[[], keras.Model]
    write: Callable[[Path, int, int], None]
    rows: int


WORKS = (
    Work("additive, one query", additive, _rows.write_pairs, 80_000),
    Work("self-attention over words", tagger, _rows.write_words, 60_000),
)


def measure(options: _harness.Options) -> dict[str, Any]:
    cases, bundles = [], []
    for work in WORKS[:1] if options.quick else WORKS:
        keras.utils.set_random_seed(0)
        folder = options.work / f"work{len(bundles)}"
        bundles.append(export_model(work.model(), folder / "bundle", progress=False).path)
        rows = 200 if options.quick else work.rows
        work.write(folder / "source", rows, FILES)
        given = {"bundle": str(bundles[-1]), "source": str(folder / "source"), "runs": 1}
        facts = {"size": work.name, "rows_of_table": rows}
        case = Case({}, _contestants(given, quick=options.quick), facts, OURS)
        cases += race([case], folder, **options.pace(ROUNDS))
    result = {"title": "Batch inference", "cases": cases, "bars": [] if options.quick else _bars(cases)}
    if options.quick or options.provider != "cpu":
        return result  # Ray alone takes longer to start than a quick run may
    return {**result, "ray": _ray(bundles[0], options)}


def _contestants(given: dict[str, Any], *, quick: bool) -> list[Contestant]:
    others = [
        Contestant(f"{OURS}, batches of {size}", "predict", {**given, "batch_size": size}) for size in BATCH_SIZES
    ]
    return [
        Contestant(LOOP, "loop over rows", given),
        Contestant(OURS, "predict", given),
        Contestant(f"{OURS}, rows in their order", "predict", {**given, "without": "buckets"}),
        Contestant(f"{OURS}, one worker", "predict", {**given, "workers": 1}),
        Contestant(f"{OURS}, through Python's lists", "predict", {**given, "without": "buffers"}),
        *([] if quick else [other for other in others if other.options["batch_size"] != BATCH_ROWS]),
    ]


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        bar(f"{case['size']}: speed over {LOOP}", 1 / row["faster"]["median"], FASTER, at_least=True)
        for case in cases
        for row in case["rows"]
        if row["contestant"] == LOOP
    ]


# --------------------------------------------------------------------------- Ray

LOCAL, RAY, CLUSTER = "this process", "Ray, started for it", "Ray, a cluster that runs"


def _ray(bundle: Path, options: _harness.Options) -> dict[str, Any]:
    """Return what Ray costs on this machine: few rows tell how long it takes to start, many how fast it is then."""
    sizes = [16 * FILES, RAY_ROWS]
    with _cluster(options.threads) as address:
        cases = [_engines_on(rows, bundle, address, options) for rows in sizes]
        found = race(cases, options.work, **options.pace(RAY_ROUNDS))
    return {"rows": sizes, "engines": _engines(found), "machines": MACHINES}


def _engines_on(rows: int, bundle: Path, address: str, options: _harness.Options) -> Case:
    folder = options.work / f"ray{rows}"
    _rows.write_pairs(folder / "source", rows, FILES)
    given = {"bundle": str(bundle), "source": str(folder / "source"), "runs": 1}
    contestants = [
        Contestant(LOCAL, "predict", given),
        Contestant(RAY, "predict", {**given, "engine": "ray"}),
        Contestant(CLUSTER, "predict", {**given, "engine": "ray", "address": address}),
    ]
    return Case({}, contestants, {"rows_of_table": rows}, LOCAL)


@contextlib.contextmanager
def _cluster(cores: int) -> Iterator[str]:
    """Yield the address of a Ray that runs on this machine."""
    import ray

    ray.init(
        address="local", num_cpus=cores, include_dashboard=False, logging_level="ERROR", _node_ip_address="127.0.0.1"
    )
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


def _engines(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the seconds of both tables, and the line through them: T = start + rows / rate."""
    few, many = cases
    engines = []
    for short, long in zip(few["rows"], many["rows"], strict=True):
        seconds = [row["ms"]["median"] / 1e3 for row in (short, long)]
        rate = (many["rows_of_table"] - few["rows_of_table"]) / (seconds[1] - seconds[0])
        start = seconds[0] - few["rows_of_table"] / rate
        engines.append({"engine": short["contestant"], "seconds": seconds, "start": start, "rate": rate})
    return engines


if __name__ == "__main__":
    _harness.run("batch", __doc__, measure)
