"""Models with attention layers that do not return their weights, and what they are trained with."""

import keras
import numpy as np
from backends import FIT_MODES
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention

FIT_MODE = next(iter(FIT_MODES.values()))
RANDOM = np.random.default_rng(3)
WORDS = RANDOM.integers(1, 9, (8, 6)).astype("int32")
LENGTHS = np.array([2, 6, 3, 4, 5, 6, 2, 3], "int32")
TARGETS = RANDOM.normal(size=(8, 1)).astype("float32")
SEQUENCES = RANDOM.normal(size=(8, 5, 4)).astype("float32")


class Noise(layers.Layer):
    """Draws in inference too, and counts its calls in a variable, and adds a loss."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(5)
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, tensor):
        self.calls.assign_add(1.0)
        self.add_loss(1e-3 * ops.mean(tensor**2))
        return tensor + keras.random.normal(ops.shape(tensor), stddev=0.1, seed=self.seed_generator)


def functional_model(*parts):
    """Words and lengths, through a layer with heads and one that is called twice."""
    words = keras.Input((6,), dtype="int32", name="words")
    lengths = keras.Input((), dtype="int32", name="lengths")
    x = layers.Embedding(9, 4, name="embedding")(words)
    for part in parts:
        x = part(x)
    x = MultiHeadAttention(DotProductAttention(dropout=0.3, seed=1), 2, name="heads")(x, x, x, lengths)
    again = AdditiveAttention(3, dropout=0.3, seed=2, name="again")
    x = again(again(x, x, x, lengths), x, x)
    x = layers.Dropout(0.2, seed=3)(layers.GlobalAveragePooling1D()(x))
    return keras.Model([words, lengths], layers.Dense(1)(x))


def compiled_model(model):
    model.compile("adam", "mse", metrics=["mae"], jit_compile=FIT_MODE)
    return model


def self_attending(layer):
    """A model of one call of a layer that takes queries, keys and values."""
    sequences = keras.Input((5, 4), name="sequences")
    pooled = layers.GlobalAveragePooling1D()(layer(sequences, sequences, sequences))
    return compiled_model(keras.Model(sequences, layers.Dense(1)(pooled)))


def fitted(model, inputs, *callbacks, epochs=2, **options):
    history = model.fit(
        inputs, TARGETS, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=[*callbacks], **options
    )
    return history.history


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class Encoder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [AdditiveAttention(3, name=f"block{number}") for number in range(2)]

    def call(self, tensor):
        for block in self.blocks:
            tensor = block(tensor, tensor, tensor)
        return tensor


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed")
        self.encoder = Encoder(name="encoder")
        self.unused = DotProductAttention(name="unused")
        self.unused.build(*[(None, 5, 4)] * 3)
        self.asked = DotProductAttention(name="asked")
        self.dense = layers.Dense(1)

    def call(self, tensor):
        encoded = self.encoder(tensor)
        pooled, weights = self.asked(encoded, encoded, tensor, return_attention_scores=True)
        return self.dense(ops.mean(pooled, axis=1) + ops.mean(weights))
