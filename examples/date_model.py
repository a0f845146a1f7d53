"""Date models: convolutions over the characters, and a decoder with attention that writes the ISO date.

`build_decoder` builds the model of the demo. `build_model` has no decoder, but ten learned queries, one for each
character of the answer; the benchmarks measure its attention.
"""

from typing import Any, NamedTuple

import keras
from date_data import ISO_CHARACTERS, ISO_LENGTH, LOCALES, START
from keras import layers, ops

from keras_attn import AdditiveAttention, AttentionCell, AttentionRNN
from keras_attn.decoding import greedy


class Encoded(NamedTuple):
    """Symbolic tensors of the encoder.

    Attributes:
        inputs: Characters (B, T), locale and lengths (B,).
        values: Features of the characters, (B, T, width).
        country: Embedding of the locale, (B, width).
    """

    inputs: list[Any]
    values: Any
    country: Any


class Decoder(NamedTuple):
    """Two models that share their weights.

    Attributes:
        training: From {characters, locale, valid_lens, before} to the logits (B, 10, 11). `before` are the previous
            characters of the correct answer.
        model: From {characters, locale, valid_lens} to {tokens (B, 10), attention (B, 10, T), lengths, scores}.
    """

    training: keras.Model
    model: keras.Model


def encode_characters(vocabulary_size: int, width: int, depth: int) -> Encoded:
    """Build the inputs, and the convolutions over them.

    Each convolution reads one character to either side, so a feature depends on at most `depth` characters to either
    side: the decoder has to attend to the right characters. Positions from `valid_lens` on are zeroed before every
    convolution and masked in the attention, so no answer depends on the padding of its batch.
    """
    characters = keras.Input((None,), dtype="int32", name="characters")
    locale = keras.Input((), dtype="int32", name="locale")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")

    positions = ops.cumsum(ops.ones_like(characters), axis=1) - 1
    mask = ops.cast(positions < ops.expand_dims(valid_lens, 1), "float32")
    mask = ops.expand_dims(mask, 2)  # (B, T, 1)
    country = layers.Embedding(len(LOCALES), width, name="locale_embedding")(locale)

    x = layers.Embedding(vocabulary_size, width, name="character_embedding")(characters)
    x = x + ops.expand_dims(country, 1)
    for index in range(depth):
        y = layers.Conv1D(width, 3, padding="same", activation="relu", name=f"conv_{index}")(x * mask)
        x = layers.LayerNormalization(name=f"norm_{index}")(x + y)
    return Encoded([characters, locale, valid_lens], x, country)


def build_decoder(vocabulary_size: int, *, width: int = 64, depth: int = 4) -> Decoder:
    """Build Bahdanau's decoder: the state attends to the characters; context and last token update the state.

    In training, `AttentionRNN` runs the cell over the correct answer. For inference, `greedy` runs it in a loop: the
    encoder precomputes the projected keys and values of the characters, and the country is the initial state.
    """
    encoded = encode_characters(vocabulary_size, width, depth)
    _, _, valid_lens = encoded.inputs
    write = layers.Embedding(START + 1, width, name="write")
    cell = AttentionCell(layers.GRUCell(width, name="gru"), AdditiveAttention(width, name="attend"), name="cell")
    answer = layers.Dense(len(ISO_CHARACTERS), name="answer")

    before = keras.Input((ISO_LENGTH,), dtype="int32", name="before")
    outputs = AttentionRNN(cell, name="decode")(
        write(before), encoded.values, valid_lens, initial_state=encoded.country
    )
    training = keras.Model([*encoded.inputs, before], answer(outputs), name="training")

    memory = cell.precompute(encoded.values)
    encoder = keras.Model(encoded.inputs, {**memory, "state": encoded.country}, name="encoder")
    token, lengths = (keras.Input((), dtype="int32", name=name) for name in ("token", "valid_lens"))
    state = keras.Input((width,), name="state")
    cache = {name: keras.Input((None, width), name=name) for name in memory}
    (output, (next_state,)), weights = cell(write(token), [state], cache, lengths, return_attention_scores=True)
    step = keras.Model(
        [token, state, lengths, *cache.values()],
        {"logits": answer(output), "next_state": next_state, "attention": weights},
        name="step",
    )
    model = greedy(
        encoder,
        step,
        {"next_state": "state"},
        start=START,
        max_length=ISO_LENGTH,
        outputs=["attention"],
        name="date_normaliser",
    )
    return Decoder(training, model)


def build_model(vocabulary_size: int, *, width: int = 64, depth: int = 4) -> keras.Model:
    """Build a functional model from {characters, locale, valid_lens} to {iso: logits, attention: weights}."""
    encoded = encode_characters(vocabulary_size, width, depth)
    _, _, valid_lens = encoded.inputs
    slots = ops.cumsum(ops.repeat(ops.expand_dims(ops.ones_like(valid_lens), 1), ISO_LENGTH, axis=1), axis=1) - 1
    queries = layers.Embedding(ISO_LENGTH, width, name="output_positions")(slots)
    queries = queries + ops.expand_dims(encoded.country, 1)
    context, weights = AdditiveAttention(64, name="attend")(
        queries, encoded.values, encoded.values, valid_lens, return_attention_scores=True
    )
    y = layers.Dense(2 * width, activation="relu", name="hidden")(layers.Concatenate()([context, queries]))
    iso = layers.Dense(len(ISO_CHARACTERS), name="iso")(y)
    return keras.Model(encoded.inputs, {"iso": iso, "attention": weights}, name="dates_at_once")
