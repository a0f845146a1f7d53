"""Speed of greedy decoding in one file and in a Python loop, and of a decoding step with and without a cache."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import _models  # noqa: F401 - silences TensorFlow before it is imported
import keras
import numpy as np
from _contestant import Contestant
from _files import write_bundle
from _harness import Options
from _race import Case
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention, RotaryEmbedding
from keras_attn.decoding import greedy

WIDTH, TOKENS, START, END = 64, 12, 11, 0
BATCH_SIZES = (1, 32)
MAX_CHARACTERS, STEPS, MAX_STEPS = 30, 10, 40
CACHE_LENGTHS = (16, 64, 256, 1024)
HEADS, KV_HEADS, HEAD_SIZE = 8, 2, 32

ONE_FILE, LOOP, ENCODER = "one file", "a loop in Python", "the encoder alone"
CACHE, NO_CACHE = "with a cache", "without a cache"


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Race complete answers, and a step with and without a cache."""
    return [*_race_answers(options), *_race_steps(options)]


# --------------------------------------------------------------------------- complete answers


def _race_answers(options: Options) -> Iterator[dict[str, Any]]:
    kinds = [(f"every answer {STEPS} steps", None, STEPS), ("answers of 1 to 40 steps", END, MAX_STEPS)]
    for name, end, limit in kinds[: 1 if options.quick else None]:
        keras.utils.set_random_seed(2)
        encoder, step, state = _build_translator()
        answer = greedy(encoder, step, state, start=START, end=end, max_length=limit)
        models = {"encoder": encoder, "step": step, "answer": answer}
        files = {key: _export(key, model, options.folder / f"{name} {key}") for key, model in models.items()}
        loop = {key: files[key].options["model"] for key in ("encoder", "step")}
        loop |= {"start": START, "end": end, "limit": limit}
        contestants = [
            replace(files["answer"], label=ONE_FILE, result="answers"),
            Contestant(LOOP, "_decoding_loop.build_loop", loop, result="answers"),
            replace(files["encoder"], label=ENCODER, result="encoded"),
        ]
        for batch in BATCH_SIZES[: 1 if options.quick else None]:
            yield options.race(Case(_make_inputs(batch), contestants, f"{name}, batch {batch}", LOOP))


def _make_inputs(batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "characters": rng.integers(1, 40, (batch, MAX_CHARACTERS)).astype("int32"),
        "valid_lens": rng.integers(MAX_CHARACTERS // 2, MAX_CHARACTERS + 1, batch).astype("int32"),
    }


def _build_translator() -> tuple[keras.Model, keras.Model, dict[str, str]]:
    """Build an untrained encoder and step like those of the date normaliser, and return them with their state."""
    attend = AdditiveAttention(WIDTH, name="attend")
    characters = keras.Input((None,), dtype="int32", name="characters")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    encode = layers.Bidirectional(layers.GRU(WIDTH, return_sequences=True, return_state=True))
    mask = ops.cumsum(ops.ones_like(characters), axis=1) <= ops.expand_dims(valid_lens, 1)
    values, forward, backward = encode(layers.Embedding(40, WIDTH)(characters), mask=mask)
    initial_state = layers.Dense(WIDTH, activation="tanh")(ops.concatenate([forward, backward], axis=-1))
    attend.build((None, 1, WIDTH), values.shape, values.shape)
    encoded = {"values": values, "state": initial_state, **attend.precompute(values)}
    encoder = keras.Model([characters, valid_lens], encoded)

    token, lens = (keras.Input((), dtype="int32", name=name) for name in ("token", "valid_lens"))
    state = keras.Input((WIDTH,), name="state")
    values_input = keras.Input((None, 2 * WIDTH), name="values")
    keys = keras.Input((None, WIDTH), name="projected_keys")
    context = ops.squeeze(attend(ops.expand_dims(state, 1), {"projected_keys": keys}, values_input, lens), 1)
    step_input = ops.concatenate([layers.Embedding(TOKENS, WIDTH)(token), context], axis=-1)
    next_state, _ = layers.GRUCell(WIDTH)(step_input, state)
    answer = layers.Dense(TOKENS - 1, kernel_initializer=keras.initializers.RandomNormal(stddev=2.0))
    outputs = {"logits": answer(ops.concatenate([next_state, context], axis=-1)), "next_state": next_state}
    return encoder, keras.Model([token, lens, state, values_input, keys], outputs), {"next_state": "state"}


def _export(label: str, model: keras.Model, folder: Path) -> Contestant:
    # The export cannot recognize `valid_lens` as lengths, because the GRU receives a mask.
    has_lengths = any(tensor.name == "valid_lens" for tensor in model.inputs)
    lengths = {"valid_lens": np.array([2, 5, 3], "int32")} if has_lengths else None
    return write_bundle(label, model, folder, sample_inputs=lengths)


# --------------------------------------------------------------------------- one step


def _race_steps(options: Options) -> Iterator[dict[str, Any]]:
    keras.utils.set_random_seed(2)
    width, folder = HEADS * HEAD_SIZE, options.folder
    attend = MultiHeadAttention(DotProductAttention(), HEADS, num_kv_heads=KV_HEADS, process_heads=RotaryEmbedding())
    tokens = keras.Input((None, width), name="tokens")
    full_model = keras.Model(tokens, {"output": attend(tokens, tokens, tokens, use_causal_mask=True)[:, -1:]})
    last_token = keras.Input((1, width), name="last")
    names = ("projected_keys", "projected_values")
    cache = {name: keras.Input((KV_HEADS, None, HEAD_SIZE), name=name) for name in names}
    next_cache = attend.append(cache, last_token, last_token)
    step = keras.Model({"last": last_token, **cache}, {"output": attend(last_token, next_cache, use_causal_mask=True)})
    contestants = [_export(CACHE, step, folder / "step"), _export(NO_CACHE, full_model, folder / "full")]
    for length in CACHE_LENGTHS[: 1 if options.quick else None]:
        embedded = np.random.default_rng(0).normal(size=(1, length, width)).astype("float32")
        precomputed = attend.precompute(embedded[:, :-1], embedded[:, :-1])
        inputs = {"tokens": embedded, "last": embedded[:, -1:]}
        inputs |= {name: np.asarray(array) for name, array in precomputed.items()}
        yield options.race(Case(inputs, contestants, f"step after {length:,} tokens", NO_CACHE))
