"""Speed of `predict` on a table, and of a plain loop over padded batches."""

from pathlib import Path
from typing import Any

import _models  # noqa: F401 - silences TensorFlow before it is imported
import _rows
import keras
from _contestant import Contestant
from _harness import Options
from _race import Case
from keras import layers

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn_export import export_model

FILES = 8
BATCH_SIZES = (16, 128)  # in addition to the default of 64
ROUNDS = 5

LOOP, OURS = "a plain loop", "`predict`"


def build_additive() -> keras.Model:
    """Build additive attention of one query over many keys."""
    queries = keras.Input((1, _rows.KEY_SIZE), name="queries")
    keys, values = (
        keras.Input((None, _rows.KEY_SIZE), name="keys"),
        keras.Input((None, _rows.VALUE_SIZE), name="values"),
    )
    lengths = keras.Input((), dtype="int32", name="valid_lens")
    context, weights = AdditiveAttention(32)(queries, keys, values, lengths, return_attention_scores=True)
    return keras.Model([queries, keys, values, lengths], {"context": context, "weights": weights})


def build_tagger() -> keras.Model:
    """Build self-attention over words, with eight scores for each word."""
    words = keras.Input((None,), dtype="int32", name="words")
    lengths = keras.Input((), dtype="int32", name="valid_lens")
    hidden = layers.Embedding(_rows.VOCABULARY_SIZE, 32)(words)
    hidden = layers.LayerNormalization()(hidden + DotProductAttention()(hidden, hidden, hidden, lengths))
    return keras.Model([words, lengths], {"tags": layers.Dense(8)(hidden)})


TABLES = (  # name, builder of the model, writer of the rows, number of rows
    ("additive, one query", build_additive, _rows.write_pairs, 80_000),
    ("self-attention over words", build_tagger, _rows.write_words, 60_000),
)


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Race `predict` over tables against a plain loop, with one worker, and with other batch sizes."""
    results = []
    for name, build_model, write, rows in TABLES[: 1 if options.quick else None]:
        keras.utils.set_random_seed(0)
        folder = options.folder / f"work{len(results)}"
        bundle = export_model(build_model(), folder / "bundle", progress=False).path
        rows = 200 if options.quick else rows
        write(folder / "source", rows, FILES)
        contestants = _make_contestants(bundle, folder / "source", BATCH_SIZES[: 1 if options.quick else None])
        result = options.race(Case({}, contestants, f"{name}, {rows:,} rows", LOOP), ROUNDS)
        for row in result["rows"]:
            row["facts"] = {"rows_per_second": rows / row["ms"]["median"] * 1e3}
        results.append(result)
    return results


def _make_contestants(bundle: Path, source: Path, sizes: tuple[int, ...]) -> list[Contestant]:
    return [
        _make_contestant(LOOP, bundle, source, builder="build_loop"),
        _make_contestant(OURS, bundle, source),
        _make_contestant(f"{OURS}, one worker", bundle, source, arguments={"workers": 1}),
        *(
            _make_contestant(f"{OURS}, batches of {size}", bundle, source, arguments={"batch_size": size})
            for size in sizes
        ),
    ]


def _make_contestant(
    label: str, bundle: Path, source: Path, builder: str = "build_predict", **options: Any
) -> Contestant:
    return Contestant(label, f"_rows.{builder}", {"bundle": str(bundle), "source": str(source), "runs": 1, **options})
