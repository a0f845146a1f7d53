"""How much faster is a whole answer in one file than a loop over a step, and a cache than the full pass?"""

from pathlib import Path
from typing import Any

import _harness
import _models  # noqa: F401 - sees to what TensorFlow says before it is imported
import keras
import numpy as np
from _process import Contestant
from _race import Case, race
from _stats import bar
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention, RotaryEmbedding
from keras_attn.decoding import greedy
from keras_attn_export import export_model

WIDTH, TOKENS, START, END = 64, 12, 11, 0
BATCHES = (1, 32)
LETTERS, STEPS, LONG_STEPS = 30, 10, 40
LENGTHS = (16, 64, 256, 1024)
HEADS, KV_HEADS, SIZE = 8, 2, 32
FASTER = 2.0  # than the loop in Python

ONE_FILE, LOOP, ENCODER = "one file", "a loop in Python", "the encoder alone"
CACHE, FULL = "a cache", "the full pass"


def measure(options: _harness.Options) -> dict[str, Any]:
    answers = _answers(options)
    steps = _steps(options)
    bars = [] if options.quick else [*_bars(answers)]
    return {"title": "Decoding", "answers": answers, "cases": steps, "bars": bars}


# --------------------------------------------------------------------------- a whole answer


def _answers(options: _harness.Options) -> list[dict[str, Any]]:
    found = []
    kinds = [("none ends early", None, STEPS), ("answers of 1 to 40 steps", END, LONG_STEPS)]
    for name, end, limit in kinds[: 1 if options.quick else None]:
        keras.utils.set_random_seed(2)
        encoder, step, state = _translator()
        folder = options.work / name
        models = {
            "encoder": encoder,
            "step": step,
            "answer": greedy(encoder, step, state, start=START, end=end, max_length=limit),
        }
        files = {key: _exported(model, folder / key) for key, model in models.items()}
        cases = [_answer_case(files, batch, end, limit, name) for batch in BATCHES[: 1 if options.quick else None]]
        folder = options.work / f"cases {name}"
        folder.mkdir()
        found += race(cases, folder, **options.pace())
    return found


def _answer_case(files: dict[str, str], batch: int, end: int | None, limit: int, name: str) -> Case:
    rng = np.random.default_rng(0)
    inputs = {
        "characters": rng.integers(1, 40, (batch, LETTERS)).astype("int32"),
        "valid_lens": rng.integers(LETTERS // 2, LETTERS + 1, batch).astype("int32"),
    }
    loop = {"encoder": files["encoder"], "step": files["step"], "start": START, "end": end, "limit": limit}
    contestants = [
        Contestant(ONE_FILE, options={"model": files["answer"]}, computes="answers"),
        Contestant(LOOP, "decoding loop", loop, computes="answers"),
        Contestant(ENCODER, options={"model": files["encoder"]}, computes="encoded"),
    ]
    return Case(inputs, contestants, {"size": f"{name}, batch {batch}"}, ONE_FILE)


def _translator() -> tuple[keras.Model, keras.Model, dict[str, str]]:
    """Return an encoder and a step as those of the example; not trained, so that its answers mean nothing."""
    attend = AdditiveAttention(WIDTH, name="attend")
    characters = keras.Input((None,), dtype="int32", name="characters")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    encode = layers.Bidirectional(layers.GRU(WIDTH, return_sequences=True, return_state=True))
    valid = ops.cumsum(ops.ones_like(characters), axis=1) <= ops.expand_dims(valid_lens, 1)
    values, forward, backward = encode(layers.Embedding(40, WIDTH)(characters), mask=valid)
    begin = layers.Dense(WIDTH, activation="tanh")(ops.concatenate([forward, backward], axis=-1))
    attend.build((None, 1, WIDTH), values.shape, values.shape)
    encoder = keras.Model([characters, valid_lens], {"values": values, "state": begin, **attend.precompute(values)})

    token, lens = (keras.Input((), dtype="int32", name=name) for name in ("token", "valid_lens"))
    state = keras.Input((WIDTH,), name="state")
    seen, keys = keras.Input((None, 2 * WIDTH), name="values"), keras.Input((None, WIDTH), name="projected_keys")
    found = ops.squeeze(attend(ops.expand_dims(state, 1), {"projected_keys": keys}, seen, lens), 1)
    told = ops.concatenate([layers.Embedding(TOKENS, WIDTH)(token), found], axis=-1)
    following, _ = layers.GRUCell(WIDTH)(told, state)
    answer = layers.Dense(TOKENS - 1, kernel_initializer=keras.initializers.RandomNormal(stddev=2.0))
    outputs = {"logits": answer(ops.concatenate([following, found], axis=-1)), "next_state": following}
    return encoder, keras.Model([token, lens, state, seen, keys], outputs), {"next_state": "state"}


def _exported(model: keras.Model, folder: Path) -> str:
    folder.parent.mkdir(exist_ok=True)
    # nothing tells the exporter that the mask of a GRU is made of lengths
    lengths = (
        {"valid_lens": np.array([2, 5, 3], "int32")}
        if any(tensor.name == "valid_lens" for tensor in model.inputs)
        else None
    )
    return str(export_model(model, folder, sample_inputs=lengths, progress=False).path / "model.onnx")


def _bars(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        bar(f"{case['size']}: speed of one file over a loop", 1 / row["faster"]["median"], FASTER, at_least=True)
        for case in answers
        for row in case["rows"]
        if row["contestant"] == LOOP
    ]


# --------------------------------------------------------------------------- a step


def _steps(options: _harness.Options) -> list[dict[str, Any]]:
    keras.utils.set_random_seed(2)
    width = HEADS * SIZE
    attend = MultiHeadAttention(DotProductAttention(), HEADS, num_kv_heads=KV_HEADS, process_heads=RotaryEmbedding())
    tokens = keras.Input((None, width), name="tokens")
    full = keras.Model(tokens, {"output": attend(tokens, tokens, tokens, use_causal_mask=True)[:, -1:]})
    last = keras.Input((1, width), name="last")
    cache = {name: keras.Input((KV_HEADS, None, SIZE), name=name) for name in ("projected_keys", "projected_values")}
    grown = attend.append(cache, last, last)
    step = keras.Model({"last": last, **cache}, {"output": attend(last, grown, use_causal_mask=True)})
    files = {CACHE: _exported(step, options.work / "step"), FULL: _exported(full, options.work / "full")}
    cases = []
    for length in LENGTHS[: 1 if options.quick else None]:
        given = np.random.default_rng(0).normal(size=(1, length, width)).astype("float32")
        held = attend.precompute(given[:, :-1], given[:, :-1])
        inputs = {"tokens": given, "last": given[:, -1:]} | {n: np.asarray(x) for n, x in held.items()}
        contestants = [Contestant(label, options={"model": file}) for label, file in files.items()]
        cases.append(Case(inputs, contestants, {"length": length}, CACHE))
    (folder := options.work / "steps").mkdir()
    return race(cases, folder, **options.pace())


if __name__ == "__main__":
    _harness.run("decoding", __doc__, measure)
