"""The model: convolutions read the characters, ten learned queries attend to them, one character of the answer each."""

import keras
import numpy as np
import tensorflow as tf
from date_data import ISO_CHARACTERS, ISO_LENGTH, LOCALES
from keras import layers, ops

from keras_attn import AdditiveAttention

Inputs = dict[str, np.ndarray]


def build_model(vocabulary_size: int, *, width: int = 64, depth: int = 4) -> keras.Model:
    """A functional model from {characters, locale, valid_lens} to {iso: logits, attention: weights}.

    Each convolution sees one character to either side, so a character's vector tells what stands up to `depth` places
    away and no more: a query has to attend to the right characters to answer. What follows `valid_lens` is zeroed
    before every convolution and masked in the attention, so no answer depends on how far its batch is padded.
    """
    characters = keras.Input((None,), dtype="int32", name="characters")
    locale = keras.Input((), dtype="int32", name="locale")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")

    places = ops.cumsum(ops.ones_like(characters), axis=1) - 1
    valid = ops.cast(places < ops.expand_dims(valid_lens, 1), "float32")
    valid = ops.expand_dims(valid, 2)  # (B, T, 1)
    country = ops.expand_dims(layers.Embedding(len(LOCALES), width, name="locale_embedding")(locale), 1)

    x = layers.Embedding(vocabulary_size, width, name="character_embedding")(characters) + country
    for n in range(depth):
        y = layers.Conv1D(width, 3, padding="same", activation="relu", name=f"conv_{n}")(x * valid)
        x = layers.LayerNormalization(name=f"norm_{n}")(x + y)

    slots = ops.cumsum(ops.repeat(ops.expand_dims(ops.ones_like(valid_lens), 1), ISO_LENGTH, axis=1), axis=1) - 1
    queries = layers.Embedding(ISO_LENGTH, width, name="output_positions")(slots) + country
    attended, weights = AdditiveAttention(64, name="attend")(queries, x, x, valid_lens, return_attention_scores=True)

    y = layers.Dense(2 * width, activation="relu", name="hidden")(layers.Concatenate()([attended, queries]))
    iso = layers.Dense(len(ISO_CHARACTERS), name="iso")(y)
    return keras.Model([characters, locale, valid_lens], {"iso": iso, "attention": weights}, name="date_normaliser")


def make_batches(inputs: Inputs, answers: np.ndarray, batch_size: int, seed: int) -> list[tuple[Inputs, Inputs]]:
    """Shuffled batches (inputs, {"iso": answers}) of dates of about one length, so that little of it is padding."""
    rng = np.random.default_rng(seed)
    pools = np.array_split(rng.permutation(len(answers)), max(1, len(answers) // (50 * batch_size)))
    order = np.concatenate([pool[np.argsort(inputs["valid_lens"][pool], kind="stable")] for pool in pools])
    batches = np.array_split(order, max(1, len(order) // batch_size))
    rng.shuffle(batches)
    return [(take(inputs, rows), {"iso": answers[rows]}) for rows in batches]


def take(inputs: Inputs, rows: np.ndarray) -> Inputs:
    """Some rows of encoded dates, padded to the longest of them."""
    chosen = {name: array[rows] for name, array in inputs.items()}
    return chosen | {"characters": chosen["characters"][:, : chosen["valid_lens"].max()]}


def train(model: keras.Model, batches: list[tuple[Inputs, Inputs]], verbose: int) -> None:
    """One pass over the data: the learning rate rises to 0.003 over the first 20th of it and falls to 0."""
    warmup = max(1, len(batches) // 20)
    rate = keras.optimizers.schedules.CosineDecay(0.0, len(batches), warmup_target=3e-3, warmup_steps=warmup)
    loss = {"iso": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "attention": None}
    model.compile(keras.optimizers.Adam(rate), loss=loss)
    # Keras would take the width of the first batches for that of all; a signature says that it varies.
    signature = tuple(
        {name: tf.TensorSpec([None] * x.ndim, x.dtype) for name, x in part.items()} for part in batches[0]
    )
    data = tf.data.Dataset.from_generator(lambda: batches, output_signature=signature)
    model.fit(data.apply(tf.data.experimental.assert_cardinality(len(batches))), shuffle=False, verbose=verbose)
