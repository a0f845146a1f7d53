"""Small encoders and steps that decode, and what they write by plain loops over one row at a time."""

import backends
import keras
import numpy as np
from keras import layers, ops

from keras_attn import AdditiveAttention

TOKENS, WIDTH, LENGTH, START = 6, 4, 7, 0
# With these the rows of `ids_of(9)` and `firsts_of(9)` end after 1, 3, 4 and all steps; after 2, 3, 4 and all.
END, END_GROWING = 1, 3
OPTIONS = {"start": START, "end": END, "max_length": LENGTH}
STATIC = {"xla", "jit"} if backends.BACKEND != "jax" else {"eager", "jit"}  # modes that need known sizes


def build_recurrent_models(seed=3, *, tokens=TOKENS, dropout=0.0):
    """An encoder of ids and a step with a GRU cell that looks back at what they say."""
    read = layers.Embedding(9, WIDTH, name="read")
    ids = keras.Input((None,), dtype="int32", name="ids")
    values = read(ids)
    encoder = keras.Model({"ids": ids}, {"values": values, "state": ops.tanh(ops.sum(values, axis=1))}, name="encoder")

    token = keras.Input((), dtype="int32", name="token")
    state, seen = keras.Input((WIDTH,), name="state"), keras.Input((None, WIDTH), name="values")
    weights = ops.softmax(ops.squeeze(ops.matmul(seen, ops.expand_dims(state, -1)), -1))
    found = ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), seen), 1)
    written = layers.Embedding(tokens, WIDTH, name="write")(token)
    inputs = layers.Dropout(dropout)(layers.Concatenate()([written, found]))
    following, _ = layers.GRUCell(WIDTH, name="cell")(inputs, state)
    logits = layers.Dense(tokens, name="answer")(following)
    step = keras.Model(
        [token, state, seen], {"logits": logits, "next_state": following, "weights": weights}, name="step"
    )
    draw_weights(seed, encoder, step)
    return encoder, step, {"next_state": "state"}


def build_attention_models(seed=11):
    """A step that takes the keys that the encoder precomputes: both call one layer."""
    attend = AdditiveAttention(5, name="attend")
    ids, token = keras.Input((None,), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    values = layers.Embedding(9, WIDTH)(ids)
    attend.build((None, 1, WIDTH), values.shape, values.shape)
    encoder = keras.Model(ids, {"values": values, **attend.precompute(values)})
    seen, keys = keras.Input((None, WIDTH), name="values"), keras.Input((None, 5), name="projected_keys")
    state = keras.Input((WIDTH,), name="state")
    found, weights = attend(ops.expand_dims(state, 1), {"projected_keys": keys}, seen, return_attention_scores=True)
    inputs = layers.Concatenate()([layers.Embedding(TOKENS, WIDTH)(token), ops.squeeze(found, 1)])
    following, _ = layers.GRUCell(WIDTH)(inputs, state)
    outputs = {"logits": layers.Dense(TOKENS)(following), "next_state": following, "weights": ops.squeeze(weights, 1)}
    step = keras.Model([token, state, seen, keys], outputs)
    draw_weights(seed, encoder, step)
    return encoder, step, {"next_state": "state"}


def build_cache_models(seed=1):
    """A step that looks back at a cache of its own tokens, which begins empty, and reads its position."""
    first = keras.Input((WIDTH,), name="first")
    encoder = keras.Model({"first": first}, {"query": layers.Dense(WIDTH, name="begin")(first)}, name="encoder")
    token, position = (keras.Input((), dtype="int32", name=name) for name in ("token", "position"))
    cache, query = keras.Input((None, WIDTH), name="cache"), keras.Input((WIDTH,), name="query")
    entry = layers.Embedding(TOKENS, WIDTH, name="write")(token)
    entry = entry + ops.expand_dims(ops.cast(position, "float32"), 1) / 3
    longer = ops.concatenate([cache, ops.expand_dims(entry, 1)], axis=1)
    weights = ops.softmax(ops.squeeze(ops.matmul(longer, ops.expand_dims(query, -1)), -1))
    found = ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), longer), 1)
    logits = layers.Dense(TOKENS, name="answer")(found + query)
    step = keras.Model([token, position, cache, query], {"logits": logits, "next_cache": longer}, name="step")
    draw_weights(seed, encoder, step)
    return encoder, step, {"next_cache": "cache"}


def fix_batch_size(model, rows):
    """A model that takes so many rows, and no others."""
    inputs = [keras.Input(batch_shape=(rows, *x.shape[1:]), dtype=x.dtype, name=x.name) for x in model.inputs]
    outputs = model(keras.tree.pack_sequence_as(model.input, inputs))
    if "logits" in outputs:
        outputs["logits"] = ops.reshape(outputs["logits"], (rows, TOKENS))
    return keras.Model(inputs, outputs)


def build_constant_models(logits):
    """A step that says the same after every token, and what goes into its encoder."""
    ids, token = keras.Input((), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    same = layers.Embedding(len(logits), len(logits), name="same")
    models = keras.Model(ids, {"unread": ids}), keras.Model(token, {"logits": same(token)}), {}
    same.set_weights([np.array([logits] * len(logits), "float32")])
    return models, {"ids": np.zeros(2, "int32")}


def draw_weights(seed, *models):
    """Weights that are the same on every backend, and large enough for answers that differ."""
    rng = np.random.default_rng(seed)
    for weight in {id(weight): weight for model in models for weight in model.weights}.values():
        weight.assign(1.5 * rng.normal(size=weight.shape))


def draw_ids(count, *, length=5, seed=0):
    return {"ids": np.random.default_rng(seed).integers(1, 9, (count, length)).astype("int32")}


def draw_first_inputs(count, *, seed=0):
    return {"first": np.random.default_rng(seed).normal(size=(count, WIDTH)).astype("float32")}


def combine_with_modes(*rows):
    """Rows of parameters, each with a mode: all of them eagerly, and one in each mode that is compiled."""
    compiled = [(*rows[number % len(rows)], mode) for number, mode in enumerate(backends.MODES[1:])]
    return [(*row, "eager") for row in rows] + compiled


def to_arrays(tensors):
    return {name: ops.convert_to_numpy(x) for name, x in tensors.items()}


def decode(model, inputs, mode="eager"):
    """What a model gives in a mode, in a program for any batch and length."""
    names = list(inputs)
    run = backends.compile_function(
        lambda *tensors: model(dict(zip(names, tensors, strict=True))),
        mode,
        variables=model.variables,
        signature=[((None, *[None] * (array.ndim - 1)), str(array.dtype)) for array in inputs.values()],
    )
    return to_arrays(run(*(ops.convert_to_tensor(array) for array in inputs.values())))


class ReferenceDecoder:
    """One row of a batch, with the step as a function of what has been written before."""

    def __init__(self, encoder, step, state, inputs, number, start=START):
        inputs = {name: array[number : number + 1] for name, array in inputs.items()}
        taken = keras.tree.pack_sequence_as(encoder.input, [inputs[x.name] for x in encoder.inputs])
        self._given = {**inputs, **to_arrays(encoder(taken))}
        self._step, self._state, self._start = step, state, start
        self._known = {}

    def after(self, tokens):
        """Log-probabilities in float64 of what can follow some tokens, and the step's outputs then."""
        tokens = tuple(int(token) for token in tokens)
        if tokens not in self._known:
            out = to_arrays(self._step(self._inputs(tokens)))
            logits = out["logits"][0].astype("float64")
            self._known[tokens] = logits - np.logaddexp.reduce(logits), out
        return self._known[tokens]

    def _inputs(self, tokens):
        last = tokens[-1] if tokens else self._start
        fed = {"token": np.array([last], "int32"), "position": np.array([len(tokens)], "int32"), **self._given}
        for source, target in self._state.items() if tokens else ():
            fed[target] = self.after(tokens[:-1])[1][source]
        inputs = [fed[x.name] if x.name in fed else _zeros(x) for x in self._step.inputs]
        return keras.tree.pack_sequence_as(self._step.input, inputs)


def _zeros(tensor):
    return np.zeros((1, *(size or 0 for size in tensor.shape[1:])), "float32")


def decode_greedily(row, end=None, limit=LENGTH):
    tokens, score = [], 0.0
    while len(tokens) < limit and (not tokens or tokens[-1] != end):
        logs, out = row.after(tokens)
        tokens.append(int(np.argmax(out["logits"][0])))
        score += logs[tokens[-1]]
    return [(score, tokens)]


def search_beam(row, width, end=None, limit=LENGTH, penalty=0.0):
    """All that a beam finds, best first, as (score, tokens). It never stops before the last step."""
    live, ended = [(0.0, [])], []
    for _ in range(limit):
        following = [
            (score + log, [*tokens, token]) for score, tokens in live for token, log in enumerate(row.after(tokens)[0])
        ]
        following.sort(key=lambda each: -each[0])
        ended += [each for each in following[:width] if each[1][-1] == end]
        live = [each for each in following if each[1][-1] != end][:width]
    return rank_sequences(ended + live, penalty)


def enumerate_sequences(row, tokens, end=None, limit=LENGTH, penalty=0.0):
    ended, live = [], [(0.0, [])]
    for _ in range(limit):
        live = [(s + log, [*before, t]) for s, before in live for t, log in enumerate(row.after(before)[0][:tokens])]
        ended += [each for each in live if each[1][-1] == end]
        live = [each for each in live if each[1][-1] != end]
    return rank_sequences(ended + live, penalty)


def rank_sequences(sequences, penalty):
    scored = [(score / ((5 + len(tokens)) / 6) ** penalty, tokens) for score, tokens in sequences]
    return sorted(scored, key=lambda each: -each[0])
