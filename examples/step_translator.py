"""Bahdanau's encoder and decoder: as a model to train, one that decodes, and its parts."""

from typing import Any, NamedTuple

import keras
from date_data import ISO_CHARACTERS, ISO_LENGTH, START
from keras import layers, ops

from keras_attn import AdditiveAttention, AttentionCell, AttentionRNN
from keras_attn.decoding import greedy


class Translator(NamedTuple):
    """One set of weights in three models.

    Attributes:
        training: From characters, lengths and the characters before each of the answer's to logits (B, 10, 11).
        model: From characters and lengths to {tokens (B, 10), weights (B, 10, T), lengths, scores}: the encoder, the
            step and the loop around it.
        encoder: What depends on the characters alone: what the cell precomputes of them, and the first state.
        step: One character of the answer.
        plain_step: A step that reads the encoded characters themselves, and projects the keys anew each time.
    """

    training: keras.Model
    model: keras.Model
    encoder: keras.Model
    step: keras.Model
    plain_step: keras.Model


def build_translator(vocabulary_size: int, width: int = 64) -> Translator:
    """The encoder reads the characters with a GRU in each direction, and the decoder looks at what that gave.

    The decoder's state is the query; what it finds and the last character move the state on. In training
    `AttentionRNN` runs the cell over the right answer. To decode, the cell is called by itself.
    """
    characters = keras.Input((None,), dtype="int32", name="characters")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    places = ops.cumsum(ops.ones_like(characters), axis=1) - 1
    valid = places < ops.expand_dims(valid_lens, 1)
    read = layers.Embedding(vocabulary_size, width, name="read")(characters)
    both_ways = layers.Bidirectional(layers.GRU(width, return_sequences=True, return_state=True), name="encode")
    values, *last = both_ways(read, mask=valid)
    first_state = layers.Dense(width, activation="tanh", name="begin")(ops.concatenate(last, axis=-1))

    write = layers.Embedding(START + 1, width, name="write")
    gru, attend = layers.GRUCell(width, name="gru"), AdditiveAttention(width, name="attend")
    cell = AttentionCell(gru, attend, attention_size=width, activation=None, name="cell")
    answer = layers.Dense(len(ISO_CHARACTERS), name="answer")
    before = keras.Input((ISO_LENGTH,), dtype="int32", name="before")
    outputs = AttentionRNN(cell, name="decode")(write(before), values, valid_lens, initial_state=first_state)
    training = keras.Model([characters, valid_lens, before], answer(outputs), name="training")

    memory = cell.precompute(values)
    encoder = keras.Model([characters, valid_lens], {**memory, "state": first_state}, name="encoder")
    precomputed = {name: keras.Input(tensor.shape[1:], name=name) for name, tensor in memory.items()}
    step = _step(write, cell, answer, precomputed, "step")
    model = greedy(
        encoder,
        step,
        {"next_state": "state"},
        start=START,
        max_length=ISO_LENGTH,
        outputs=["weights"],
        name="translator",
    )
    plain = {"values": keras.Input(values.shape[1:], name="values")}
    return Translator(training, model, encoder, step, _step(write, cell, answer, plain, "plain_step"))


def _step(write: Any, cell: Any, answer: Any, memory: dict[str, Any], name: str) -> keras.Model:
    """One character of the answer, from the memory that the cell is to look at."""
    token, valid_lens = (keras.Input((), dtype="int32", name=each) for each in ("token", "valid_lens"))
    state = keras.Input((cell.state_size[0],), name="state")
    (output, (next_state,)), weights = cell(
        write(token), [state], memory.get("values", memory), valid_lens, return_attention_scores=True
    )
    outputs = {"logits": answer(output), "next_state": next_state, "weights": weights}
    return keras.Model([token, state, valid_lens, *memory.values()], outputs, name=name)
