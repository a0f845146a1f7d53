"""An encoder and a decoder with additive attention: as one model to train, and as the two that decode step by step."""

from typing import Any

import keras
from date_data import ISO_CHARACTERS, ISO_LENGTH
from keras import layers, ops

from keras_attn import AdditiveAttention

START = len(ISO_CHARACTERS)  # the token before the first character


class Translator:
    """The layers that all the models share.

    The encoder reads the characters with a GRU in each direction. The decoder's state is the query that looks at what
    the encoder gave, keys and values at once; what it finds there and the last character move the state on.
    """

    def __init__(self, vocabulary_size: int, width: int = 64) -> None:
        self.width = width
        self.read = layers.Embedding(vocabulary_size, width, name="read")
        self.encode = layers.Bidirectional(layers.GRU(width, return_sequences=True, return_state=True), name="encode")
        self.begin = layers.Dense(width, activation="tanh", name="begin")
        self.attend = AdditiveAttention(width, name="attend")
        self.write = layers.Embedding(START + 1, width, name="write")
        self.cell = layers.GRUCell(width, name="cell")
        self.answer = layers.Dense(len(ISO_CHARACTERS), name="answer")

    def encoded(self, characters: Any, valid_lens: Any) -> tuple[Any, Any]:
        """What the characters (B, T) say, (B, T, 2 width), and the decoder's first state (B, width)."""
        places = ops.cumsum(ops.ones_like(characters), axis=1) - 1
        valid = places < ops.expand_dims(valid_lens, 1)
        values, forward, backward = self.encode(self.read(characters), mask=valid)
        return values, self.begin(ops.concatenate([forward, backward], axis=-1))

    def step(self, token: Any, state: Any, keys: Any, values: Any, valid_lens: Any) -> tuple[Any, Any, Any]:
        """One character: logits (B, 11), the next state (B, width) and the weights (B, T).

        `keys` are the encoded values, or what `attend.precompute` made of them.
        """
        query = ops.expand_dims(state, 1)
        found, weights = self.attend(query, keys, values, valid_lens, return_attention_scores=True)
        found = ops.squeeze(found, 1)
        state, _ = self.cell(ops.concatenate([self.write(token), found], axis=-1), state)
        return self.answer(ops.concatenate([state, found], axis=-1)), state, ops.squeeze(weights, 1)


def training_model(translator: Translator) -> keras.Model:
    """From characters, lengths and the characters before each of the answer's to logits (B, 10, 11)."""
    characters, valid_lens = _encoder_inputs()
    before = keras.Input((ISO_LENGTH,), dtype="int32", name="before")
    values, state = translator.encoded(characters, valid_lens)
    logits = []
    for n in range(ISO_LENGTH):
        scores, state, _ = translator.step(before[:, n], state, values, values, valid_lens)
        logits.append(scores)
    return keras.Model([characters, valid_lens, before], ops.stack(logits, axis=1), name="training")


def encoder_model(translator: Translator) -> keras.Model:
    """What is computed once for a text: the encoded values, what attention needs of them, and the first state."""
    characters, valid_lens = _encoder_inputs()
    values, state = translator.encoded(characters, valid_lens)
    keys_state = translator.attend.precompute(values)
    outputs = {"values": values, "projected_keys": keys_state["projected_keys"], "state": state}
    return keras.Model([characters, valid_lens], outputs, name="encoder")


def step_model(translator: Translator, *, precomputed: bool) -> keras.Model:
    """What is computed for each character of the answer, from precomputed keys or from the encoded values alone."""
    token, valid_lens = (keras.Input((), dtype="int32", name=name) for name in ("token", "valid_lens"))
    state = keras.Input((translator.width,), name="state")
    values = keras.Input((None, 2 * translator.width), name="values")
    inputs, keys = [token, state, values, valid_lens], values
    if precomputed:
        projected = keras.Input((None, translator.width), name="projected_keys")
        inputs, keys = [*inputs, projected], {"projected_keys": projected}
    logits, next_state, weights = translator.step(token, state, keys, values, valid_lens)
    outputs = {"logits": logits, "next_state": next_state, "weights": weights}
    return keras.Model(inputs, outputs, name="step" if precomputed else "plain_step")


def _encoder_inputs() -> tuple[Any, Any]:
    return (
        keras.Input((None,), dtype="int32", name="characters"),
        keras.Input((), dtype="int32", name="valid_lens"),
    )
