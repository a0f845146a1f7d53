"""Small encoders and decoding steps, and reference decoders that loop over one row at a time."""

import backends
import keras
import numpy as np
from keras import layers, ops

from keras_attn import AdditiveAttention

TOKENS, WIDTH, LENGTH, START = 6, 4, 7, 0
# END ends the rows of `draw_ids(9)` after 1, 3, 4 or all steps. GROWING_CACHE_END is for models with
# a growing cache (`build_cache_models`) and ends the rows of `draw_first_inputs(9)` after 2, 3, 4 or all steps.
END, GROWING_CACHE_END = 1, 3
OPTIONS = {"start": START, "end": END, "max_length": LENGTH}
STATIC_MODES = {"xla", "jit"} if backends.BACKEND != "jax" else {"eager", "jit"}  # modes that need known sizes


def build_recurrent_models(seed=3, *, tokens=TOKENS, dropout=0.0):
    """Build an encoder of ids, and a step with a GRU cell that attends to the encoded ids."""
    embedding = layers.Embedding(9, WIDTH, name="read")
    ids = keras.Input((None,), dtype="int32", name="ids")
    values = embedding(ids)
    encoder = keras.Model({"ids": ids}, {"values": values, "state": ops.tanh(ops.sum(values, axis=1))}, name="encoder")

    token = keras.Input((), dtype="int32", name="token")
    state, memory = keras.Input((WIDTH,), name="state"), keras.Input((None, WIDTH), name="values")
    weights = ops.softmax(ops.squeeze(ops.matmul(memory, ops.expand_dims(state, -1)), -1))
    context = ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), memory), 1)
    embedded_token = layers.Embedding(tokens, WIDTH, name="write")(token)
    inputs = layers.Dropout(dropout)(layers.Concatenate()([embedded_token, context]))
    next_state, _ = layers.GRUCell(WIDTH, name="cell")(inputs, state)
    logits = layers.Dense(tokens, name="answer")(next_state)
    outputs = {"logits": logits, "next_state": next_state, "weights": weights}
    step = keras.Model([token, state, memory], outputs, name="step")
    draw_weights(seed, encoder, step)
    return encoder, step, {"next_state": "state"}


def build_attention_models(seed=11):
    """Build an encoder that precomputes keys, and a step that attends to them with the same layer."""
    attention = AdditiveAttention(5, name="attend")
    ids, token = keras.Input((None,), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    values = layers.Embedding(9, WIDTH)(ids)
    attention.build((None, 1, WIDTH), values.shape, values.shape)
    encoder = keras.Model(ids, {"values": values, **attention.precompute(values)})
    memory, keys = keras.Input((None, WIDTH), name="values"), keras.Input((None, 5), name="projected_keys")
    state = keras.Input((WIDTH,), name="state")
    precomputed = {"projected_keys": keys}
    context, weights = attention(ops.expand_dims(state, 1), precomputed, memory, return_attention_scores=True)
    inputs = layers.Concatenate()([layers.Embedding(TOKENS, WIDTH)(token), ops.squeeze(context, 1)])
    next_state, _ = layers.GRUCell(WIDTH)(inputs, state)
    outputs = {"logits": layers.Dense(TOKENS)(next_state), "next_state": next_state, "weights": ops.squeeze(weights, 1)}
    step = keras.Model([token, state, memory, keys], outputs)
    draw_weights(seed, encoder, step)
    return encoder, step, {"next_state": "state"}


def build_cache_models(seed=1):
    """Build a step that attends to a growing cache of its tokens, and reads the position of the step."""
    first = keras.Input((WIDTH,), name="first")
    encoder = keras.Model({"first": first}, {"query": layers.Dense(WIDTH, name="begin")(first)}, name="encoder")
    token, position = (keras.Input((), dtype="int32", name=name) for name in ("token", "position"))
    cache, query = keras.Input((None, WIDTH), name="cache"), keras.Input((WIDTH,), name="query")
    cache_row = layers.Embedding(TOKENS, WIDTH, name="write")(token)
    cache_row = cache_row + ops.expand_dims(ops.cast(position, "float32"), 1) / 3
    appended = ops.concatenate([cache, ops.expand_dims(cache_row, 1)], axis=1)
    weights = ops.softmax(ops.squeeze(ops.matmul(appended, ops.expand_dims(query, -1)), -1))
    context = ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), appended), 1)
    logits = layers.Dense(TOKENS, name="answer")(context + query)
    step = keras.Model([token, position, cache, query], {"logits": logits, "next_cache": appended}, name="step")
    draw_weights(seed, encoder, step)
    return encoder, step, {"next_cache": "cache"}


def fix_batch_size(model, rows):
    """Return a model with the fixed batch size `rows`."""
    inputs = [keras.Input(batch_shape=(rows, *x.shape[1:]), dtype=x.dtype, name=x.name) for x in model.inputs]
    outputs = model(keras.tree.pack_sequence_as(model.input, inputs))
    if "logits" in outputs:
        outputs["logits"] = ops.reshape(outputs["logits"], (rows, TOKENS))
    return keras.Model(inputs, outputs)


def build_constant_models(logits):
    """Build a step whose logits do not depend on the token, and inputs of its encoder."""
    ids, token = keras.Input((), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    constant = layers.Embedding(len(logits), len(logits), name="same")
    models = keras.Model(ids, {"unused_ids": ids}), keras.Model(token, {"logits": constant(token)}), {}
    constant.set_weights([np.array([logits] * len(logits), "float32")])
    return models, {"ids": np.zeros(2, "int32")}


def draw_weights(seed, *models):
    """Draw weights that are equal on every backend, and so large that different inputs give different tokens."""
    rng = np.random.default_rng(seed)
    for weight in {id(weight): weight for model in models for weight in model.weights}.values():
        weight.assign(1.5 * rng.normal(size=weight.shape))


def draw_ids(count, *, length=5, seed=0):
    return {"ids": np.random.default_rng(seed).integers(1, 9, (count, length)).astype("int32")}


def draw_first_inputs(count, *, seed=0):
    return {"first": np.random.default_rng(seed).normal(size=(count, WIDTH)).astype("float32")}


def combine_with_modes(*rows):
    """Return rows of parameters with a mode: all rows eagerly, and one row in each compiled mode."""
    compiled = [(*rows[number % len(rows)], mode) for number, mode in enumerate(backends.MODES[1:])]
    return [(*row, "eager") for row in rows] + compiled


def to_arrays(tensors):
    return {name: ops.convert_to_numpy(x) for name, x in tensors.items()}


def decode(model, inputs, mode="eager"):
    """Return the outputs of a model in a mode; the compiled program accepts any batch and length."""
    names = list(inputs)
    run = backends.compile_function(
        lambda *tensors: model(dict(zip(names, tensors, strict=True))),
        mode,
        variables=model.variables,
        signature=[((None, *[None] * (array.ndim - 1)), str(array.dtype)) for array in inputs.values()],
    )
    return to_arrays(run(*(ops.convert_to_tensor(array) for array in inputs.values())))


class ReferenceDecoder:
    """One row of a batch, with the step as a function of the previous tokens."""

    def __init__(self, encoder, step, state, inputs, number, start=START):
        inputs = {name: array[number : number + 1] for name, array in inputs.items()}
        encoder_inputs = keras.tree.pack_sequence_as(encoder.input, [inputs[tensor.name] for tensor in encoder.inputs])
        self._encoding = {**inputs, **to_arrays(encoder(encoder_inputs))}
        self._step, self._state, self._start = step, state, start
        self._predictions = {}

    def predict_after(self, tokens):
        """Return the float64 log-probabilities of the next token after `tokens`, and the outputs of that step."""
        tokens = tuple(int(token) for token in tokens)
        if tokens not in self._predictions:
            outputs = to_arrays(self._step(self._inputs(tokens)))
            logits = outputs["logits"][0].astype("float64")
            self._predictions[tokens] = logits - np.logaddexp.reduce(logits), outputs
        return self._predictions[tokens]

    def _inputs(self, tokens):
        last = tokens[-1] if tokens else self._start
        arrays = {"token": np.array([last], "int32"), "position": np.array([len(tokens)], "int32"), **self._encoding}
        for source, target in self._state.items() if tokens else ():
            arrays[target] = self.predict_after(tokens[:-1])[1][source]
        inputs = [arrays[x.name] if x.name in arrays else _build_zeros(x) for x in self._step.inputs]
        return keras.tree.pack_sequence_as(self._step.input, inputs)


def _build_zeros(tensor):
    return np.zeros((1, *(size or 0 for size in tensor.shape[1:])), "float32")


def decode_greedily(row, end=None, limit=LENGTH):
    tokens, score = [], 0.0
    while len(tokens) < limit and (not tokens or tokens[-1] != end):
        log_probabilities, outputs = row.predict_after(tokens)
        tokens.append(int(np.argmax(outputs["logits"][0])))
        score += log_probabilities[tokens[-1]]
    return [(score, tokens)]


def search_beam(row, width, end=None, limit=LENGTH, penalty=0.0):
    """Return the sequences of a beam search that never stops early, best first, as (score, tokens)."""
    live, ended = [(0.0, [])], []
    for _ in range(limit):
        candidates = sorted(_extend_sequences(row, live), key=lambda sequence: -sequence[0])
        ended += [sequence for sequence in candidates[:width] if sequence[1][-1] == end]
        live = [sequence for sequence in candidates if sequence[1][-1] != end][:width]
    return rank_sequences(ended + live, penalty)


def enumerate_sequences(row, tokens, end=None, limit=LENGTH, penalty=0.0):
    ended, live = [], [(0.0, [])]
    for _ in range(limit):
        live = _extend_sequences(row, live, tokens)
        ended += [sequence for sequence in live if sequence[1][-1] == end]
        live = [sequence for sequence in live if sequence[1][-1] != end]
    return rank_sequences(ended + live, penalty)


def _extend_sequences(row, sequences, num_tokens=None):
    return [
        (score + log_probability, [*tokens, token])
        for score, tokens in sequences
        for token, log_probability in enumerate(row.predict_after(tokens)[0][:num_tokens])
    ]


def rank_sequences(sequences, penalty):
    scored = [(score / ((5 + len(tokens)) / 6) ** penalty, tokens) for score, tokens in sequences]
    return sorted(scored, key=lambda sequence: -sequence[0])
