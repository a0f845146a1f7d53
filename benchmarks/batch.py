"""How fast is `predict` against a plain loop, when is Ray faster, and what makes serving fast?"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _models  # noqa: F401 - sees to what TensorFlow says before it is imported
import _rows
import keras
from _contestant import Contestant
from _harness import Options
from _race import Case
from _serving import serving
from _stats import bar, inverse, rows_of, speed
from keras import layers

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn_export import export_model

__all__ = ["predict", "serving"]

FILES = 8
RAY_ROWS = 240_000  # so many that what is left after the start stands out of the noise of it
BATCH_SIZES = (8, 16, 32, 128)  # beside the default of 64
MACHINES = (2, 4, 10)
FASTER = 3.0  # than a plain loop, on two cores
ROUNDS, RAY_ROUNDS = 5, 3

LOOP, OURS = "a plain loop", "`predict`"


def additive() -> keras.Model:
    """Return additive attention of one query over many keys."""
    queries = keras.Input((1, _rows.KEY_SIZE), name="queries")
    keys, values = (
        keras.Input((None, _rows.KEY_SIZE), name="keys"),
        keras.Input((None, _rows.VALUE_SIZE), name="values"),
    )
    lengths = keras.Input((), dtype="int32", name="valid_lens")
    context, weights = AdditiveAttention(32)(queries, keys, values, lengths, return_attention_scores=True)
    return keras.Model([queries, keys, values, lengths], {"context": context, "weights": weights})


def tagger() -> keras.Model:
    """Return self-attention over words, which gives each of them a few numbers."""
    words = keras.Input((None,), dtype="int32", name="words")
    lengths = keras.Input((), dtype="int32", name="valid_lens")
    x = layers.Embedding(_rows.VOCABULARY, 32)(words)
    x = layers.LayerNormalization()(x + DotProductAttention()(x, x, x, lengths))
    return keras.Model([words, lengths], {"tags": layers.Dense(8)(x)})


WORKS = (  # a model, who writes its rows, and how many
    ("additive, one query", additive, _rows.write_pairs, 80_000),
    ("self-attention over words", tagger, _rows.write_words, 60_000),
)


def predict(options: Options) -> dict[str, Any]:
    """Race `predict` over tables against a plain loop, with one thing less each, and on Ray."""
    cases, bundles = [], []
    for name, model, write, rows in WORKS[: 1 if options.quick else None]:
        keras.utils.set_random_seed(0)
        folder = options.work / f"work{len(bundles)}"
        bundles.append(export_model(model(), folder / "bundle", progress=False).path)
        rows = 200 if options.quick else rows
        write(folder / "source", rows, FILES)
        contestants = _contestants(bundles[-1], folder / "source", BATCH_SIZES[: 1 if options.quick else None])
        cases.append(options.race(Case({}, contestants, {"size": name, "rows_of_table": rows}, OURS), ROUNDS))
    bars = [bar(f"{case['size']}: speed over {LOOP}", inverse(speed(case, LOOP)), FASTER) for case in cases]
    # Ray alone takes longer to start than a quick run may
    ray = {} if options.quick else {"ray": _ray(bundles[0], options)}
    return {"cases": cases, "bars": bars, **ray}


def _contestants(bundle: Path, source: Path, sizes: tuple[int, ...]) -> list[Contestant]:
    return [
        _contestant(LOOP, bundle, source, run="loop"),
        _contestant(OURS, bundle, source),
        _contestant(f"{OURS}, rows not sorted by length", bundle, source, in_order=True),
        _contestant(f"{OURS}, one worker", bundle, source, asked={"workers": 1}),
        *(_contestant(f"{OURS}, batches of {size}", bundle, source, asked={"batch_size": size}) for size in sizes),
    ]


def _contestant(label: str, bundle: Path, source: Path, run: str = "ours", **more: Any) -> Contestant:
    return Contestant(label, f"_rows.{run}", {"bundle": str(bundle), "source": str(source), "runs": 1, **more})


# --------------------------------------------------------------------------- Ray

LOCAL, RAY, CLUSTER = "this process", "Ray, started for it", "Ray, a cluster that runs"


def _ray(bundle: Path, options: Options) -> dict[str, Any]:
    """Return what Ray costs on this machine: few rows tell how long it takes to start, many how fast it is then."""
    sizes = [16 * FILES, RAY_ROWS]
    cases = []
    with _cluster(options.threads) as address:
        for rows in sizes:
            _rows.write_pairs(source := options.work / f"ray{rows}", rows, FILES)
            ray = {"asked": {"engine": "ray"}}
            contestants = [
                _contestant(LOCAL, bundle, source),
                _contestant(RAY, bundle, source, **ray),
                _contestant(CLUSTER, bundle, source, **ray, address=address),
            ]
            cases.append(options.race(Case({}, contestants, {"rows_of_table": rows}, LOCAL), RAY_ROUNDS))
    return {"rows": sizes, "engines": _engines(*cases), "machines": MACHINES}


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


def _engines(few: dict[str, Any], many: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the seconds of both tables, and the line through them: T = start + rows / rate."""
    engines = []
    for label, short in rows_of(few).items():
        seconds = [row["ms"]["median"] / 1e3 for row in (short, rows_of(many)[label])]
        rate = (many["rows_of_table"] - few["rows_of_table"]) / (seconds[1] - seconds[0])
        start = seconds[0] - few["rows_of_table"] / rate
        engines.append({"engine": label, "seconds": seconds, "start": start, "rate": rate})
    return engines
