"""Speed of a whole answer from one file and of a loop, and of a step with a cache and without."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import _models  # noqa: F401 - sees to what TensorFlow says before it is imported
import keras
import numpy as np
from _contestant import Contestant
from _files import of_ours
from _harness import Options
from _race import Case
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention, RotaryEmbedding
from keras_attn.decoding import greedy

WIDTH, TOKENS, START, END = 64, 12, 11, 0
BATCHES = (1, 32)
LETTERS, STEPS, LONG_STEPS = 30, 10, 40
LENGTHS = (16, 64, 256, 1024)
HEADS, KV_HEADS, SIZE = 8, 2, 32

ONE_FILE, LOOP, ENCODER = "one file", "a loop in Python", "the encoder alone"
CACHE, FULL = "with a cache", "without a cache"


def cases(options: Options) -> list[dict[str, Any]]:
    """Race whole answers, and a step with and without a cache."""
    return [*_answers(options), *_steps(options)]


# --------------------------------------------------------------------------- a whole answer


def _answers(options: Options) -> Iterator[dict[str, Any]]:
    kinds = [(f"every answer {STEPS} steps", None, STEPS), ("answers of 1 to 40 steps", END, LONG_STEPS)]
    for name, end, limit in kinds[: 1 if options.quick else None]:
        keras.utils.set_random_seed(2)
        encoder, step, state = _translator()
        answer = greedy(encoder, step, state, start=START, end=end, max_length=limit)
        models = {"encoder": encoder, "step": step, "answer": answer}
        files = {key: _exported(key, model, options.work / f"{name} {key}") for key, model in models.items()}
        loop = {key: files[key].options["model"] for key in ("encoder", "step")}
        loop |= {"start": START, "end": end, "limit": limit}
        contestants = [
            replace(files["answer"], label=ONE_FILE, computes="answers"),
            Contestant(LOOP, "_decoding_loop.loop", loop, computes="answers"),
            replace(files["encoder"], label=ENCODER, computes="encoded"),
        ]
        for batch in BATCHES[: 1 if options.quick else None]:
            yield options.race(Case(_letters(batch), contestants, f"{name}, batch {batch}", LOOP))


def _letters(batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "characters": rng.integers(1, 40, (batch, LETTERS)).astype("int32"),
        "valid_lens": rng.integers(LETTERS // 2, LETTERS + 1, batch).astype("int32"),
    }


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


def _exported(label: str, model: keras.Model, folder: Path) -> Contestant:
    # nothing tells the exporter that the mask of a GRU is made of lengths
    has_lengths = any(tensor.name == "valid_lens" for tensor in model.inputs)
    lengths = {"valid_lens": np.array([2, 5, 3], "int32")} if has_lengths else None
    return of_ours(label, model, folder, sample_inputs=lengths)


# --------------------------------------------------------------------------- a step


def _steps(options: Options) -> Iterator[dict[str, Any]]:
    keras.utils.set_random_seed(2)
    width = HEADS * SIZE
    attend = MultiHeadAttention(DotProductAttention(), HEADS, num_kv_heads=KV_HEADS, process_heads=RotaryEmbedding())
    tokens = keras.Input((None, width), name="tokens")
    full = keras.Model(tokens, {"output": attend(tokens, tokens, tokens, use_causal_mask=True)[:, -1:]})
    last = keras.Input((1, width), name="last")
    cache = {name: keras.Input((KV_HEADS, None, SIZE), name=name) for name in ("projected_keys", "projected_values")}
    grown = attend.append(cache, last, last)
    step = keras.Model({"last": last, **cache}, {"output": attend(last, grown, use_causal_mask=True)})
    contestants = [_exported(CACHE, step, options.work / "step"), _exported(FULL, full, options.work / "full")]
    for length in LENGTHS[: 1 if options.quick else None]:
        given = np.random.default_rng(0).normal(size=(1, length, width)).astype("float32")
        held = attend.precompute(given[:, :-1], given[:, :-1])
        inputs = {"tokens": given, "last": given[:, -1:]} | {n: np.asarray(x) for n, x in held.items()}
        yield options.race(Case(inputs, contestants, f"step after {length:,} tokens", FULL))
