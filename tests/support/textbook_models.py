"""The textbook's models, written anew in Keras 3 as a reader ports them: loops in Python, sizes asked for in Python.

The attention in them is that of `keras_attn`, but for the book's own heads, which fill scores with -1e6.
"""

import keras
import numpy as np
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention

B, STEPS, SOURCE, WORDS, EMBED, HIDDEN, LAYERS = 3, 2, 5, 11, 6, 8, 2
registered = keras.saving.register_keras_serializable("textbook")


def masked_softmax(scores, valid_lens):
    """The softmax over the last axis of scores of three axes, with -1e6 where a key is beyond the length."""
    if valid_lens is None:
        return ops.softmax(scores)
    shape = scores.shape
    lengths = ops.repeat(valid_lens, shape[1]) if len(valid_lens.shape) == 1 else ops.reshape(valid_lens, (-1,))
    flat = ops.reshape(scores, (-1, shape[-1]))
    seen = ops.expand_dims(ops.arange(shape[-1]), 0) < ops.expand_dims(ops.cast(lengths, "int32"), 1)
    return ops.softmax(ops.reshape(ops.where(seen, flat, -1e6), ops.shape(scores)))


@registered
class BooksHeads(layers.Layer):
    """Multi-head attention over scaled dot products as the book has it: heads become a part of the batch."""

    def __init__(self, num_hiddens, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_hiddens, self.num_heads = num_hiddens, num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (layers.Dense(num_hiddens, use_bias=False) for _ in range(4))

    def heads(self, x):
        split = ops.reshape(x, (-1, x.shape[1], self.num_heads, self.num_hiddens // self.num_heads))
        return ops.reshape(ops.transpose(split, (0, 2, 1, 3)), (-1, x.shape[1], split.shape[-1]))

    def call(self, queries, keys, values, valid_lens):
        q, k, v = self.heads(self.W_q(queries)), self.heads(self.W_k(keys)), self.heads(self.W_v(values))
        if valid_lens is not None:
            valid_lens = ops.repeat(valid_lens, self.num_heads, axis=0)
        scores = ops.matmul(q, ops.transpose(k, (0, 2, 1))) / q.shape[-1] ** 0.5
        out = ops.matmul(masked_softmax(scores, valid_lens), v)
        split = ops.reshape(out, (-1, self.num_heads, out.shape[1], out.shape[2]))
        return self.W_o(ops.reshape(ops.transpose(split, (0, 2, 1, 3)), (-1, out.shape[1], self.num_hiddens)))


@registered
class Seq2SeqAttentionDecoder(keras.Model):
    """Bahdanau's decoder: at each step the state of the last layer asks the encoder's outputs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = AdditiveAttention(HIDDEN)
        self.embedding = layers.Embedding(WORDS, EMBED)
        self.cells = [layers.GRUCell(HIDDEN) for _ in range(LAYERS)]
        self.dense = layers.Dense(WORDS)

    def call(self, X, state):
        enc_outputs, hidden_state, enc_valid_lens = state
        X, hidden = self.embedding(X), ops.unstack(hidden_state)
        outputs = []
        for step in range(X.shape[1]):
            query = ops.expand_dims(hidden[-1], 1)
            context = self.attention(query, enc_outputs, enc_outputs, enc_valid_lens)
            x = ops.concatenate([ops.squeeze(context, 1), X[:, step]], -1)
            cells = zip(self.cells, hidden, strict=True)
            hidden = []
            for cell, before in cells:
                x, (after,) = cell(x, [before])
                hidden.append(after)
            outputs.append(x)
        return self.dense(ops.stack(outputs, 1)), ops.stack(hidden)


@registered
class PositionalEncoding(layers.Layer):
    """Adds the first rows of a table of sines and cosines."""

    def __init__(self, num_hiddens, max_len=1000, **kwargs):
        super().__init__(**kwargs)
        angles = np.arange(max_len)[:, None] / 10000 ** (np.arange(0, num_hiddens, 2) / num_hiddens)
        self.P = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(1, max_len, num_hiddens).astype("float32")

    def call(self, X):
        return X + self.P[:, : X.shape[1], :]


@registered
class AddNorm(layers.Layer):
    """The residual connection, and layer normalization."""

    def __init__(self, dropout, **kwargs):
        super().__init__(**kwargs)
        self.dropout, self.norm = layers.Dropout(dropout), layers.LayerNormalization()

    def call(self, X, Y, training=None):
        return self.norm(self.dropout(Y, training=training) + X)


@registered
class EncoderBlock(layers.Layer):
    """A block of the Transformer encoder; its lengths count the steps of `X`."""

    def __init__(self, books=False, **kwargs):
        super().__init__(**kwargs)
        self.attention = BooksHeads(HIDDEN, 2) if books else MultiHeadAttention(DotProductAttention(), 2)
        self.addnorm1, self.addnorm2 = AddNorm(0.1), AddNorm(0.1)
        self.ffn = [layers.Dense(12, activation="relu"), layers.Dense(HIDDEN)]

    def call(self, X, valid_lens, training=None):
        Y = self.addnorm1(X, self.attention(X, X, X, valid_lens), training=training)
        return self.addnorm2(Y, self.ffn[1](self.ffn[0](Y)), training=training)


@registered
class TransformerEncoder(keras.Model):
    """Embedding, positions, a block."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(WORDS, HIDDEN)
        self.pos_encoding = PositionalEncoding(HIDDEN)
        self.block = EncoderBlock(books=True)

    def call(self, X, valid_lens, training=None):
        X = self.pos_encoding(self.embedding(X) * HIDDEN**0.5)
        return self.block(X, valid_lens, training=training)


def encoder_block():
    """A block in a functional model."""
    X, valid_lens = keras.Input((None, HIDDEN), name="X"), keras.Input((), dtype="int32", name="valid_lens")
    return keras.Model([X, valid_lens], EncoderBlock(name="block")(X, valid_lens))


@registered
class NWKernelRegression(keras.Model):
    """Nadaraya-Watson kernel regression with a learned width: keys and values stand there for every query."""

    def build(self, *shapes):
        self.w = self.add_weight(shape=(1,), initializer=keras.initializers.Constant(0.7), name="w")

    def call(self, queries, keys, values):
        queries = ops.repeat(ops.expand_dims(queries, 1), keys.shape[1], axis=1)
        weights = ops.softmax(-(((queries - keys) * self.w) ** 2) / 2, axis=1)
        return ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), ops.expand_dims(values, -1)), (1, 2))


def samples_of(model):
    """Samples for a model of this file, by its class."""
    rng = np.random.default_rng(0)

    def floats(*shape):
        return rng.standard_normal(shape, "float32")

    def words(length):
        return rng.integers(0, WORDS, (B, length))

    state = [floats(B, SOURCE, HIDDEN), floats(LAYERS, B, HIDDEN), np.array([SOURCE, 2, 3])]
    return {
        Seq2SeqAttentionDecoder: {"X": words(STEPS), "state": state},
        TransformerEncoder: {"X": words(SOURCE), "valid_lens": np.array([3, SOURCE, 1])},
        NWKernelRegression: {"queries": floats(5), "keys": floats(5, 9), "values": floats(5, 9)},
    }[type(model)]
