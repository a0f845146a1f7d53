"""The textbook's layers in TensorFlow, written anew; each function returns a state and what runs the layer.

The state is read from a checkpoint that TensorFlow writes; `attention` stands before its names.
"""

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

PREFIX = "attention"


class Dense(tf.Module):
    def __init__(self, random, size_in, size_out, bias=False):
        super().__init__()
        self.kernel = tf.Variable(random.normal(size=(size_in, size_out)) / 2, dtype="float32")
        self.bias = tf.Variable(random.normal(size=size_out) / 2, dtype="float32") if bias else None

    def __call__(self, inputs):
        outputs = tf.tensordot(inputs, self.kernel, 1)
        return outputs if self.bias is None else outputs + self.bias


def masked_softmax(scores, valid_lens):
    if valid_lens is not None:
        lengths = tf.reshape(valid_lens, (len(scores), -1, 1))
        scores = tf.where(tf.range(scores.shape[-1], dtype=lengths.dtype) < lengths, scores, -1e6)
    return tf.nn.softmax(scores, -1)


class AdditiveAttention(tf.Module):
    def __init__(self, random, Dq, Dk, U):
        super().__init__()
        self.W_k = Dense(random, Dk, U)
        self.W_q = Dense(random, Dq, U)
        self.w_v = Dense(random, U, 1)

    def __call__(self, queries, keys, values, valid_lens):
        features = tf.tanh(self.W_q(queries)[:, :, None] + self.W_k(keys)[:, None])
        return tf.matmul(masked_softmax(tf.squeeze(self.w_v(features), -1), valid_lens), values)


class DotProductAttention(tf.Module):
    def __call__(self, queries, keys, values, valid_lens):
        scores = tf.matmul(queries, keys, transpose_b=True) / queries.shape[-1] ** 0.5
        return tf.matmul(masked_softmax(scores, valid_lens), values)


class MultiHeadAttention(tf.Module):
    def __init__(self, random, Dq, Dk, Dv, hidden, heads, bias):
        super().__init__()
        self.heads, self.attention = heads, DotProductAttention()
        self.W_q, self.W_k, self.W_v = (Dense(random, size, hidden, bias) for size in (Dq, Dk, Dv))
        self.W_o = Dense(random, hidden, hidden, bias)

    def __call__(self, queries, keys, values, valid_lens):
        def split(inputs):
            return tf.concat(tf.split(inputs, self.heads, -1), 0)

        lengths = None if valid_lens is None else tf.concat([valid_lens] * self.heads, 0)
        pooled = self.attention(*map(split, (self.W_q(queries), self.W_k(keys), self.W_v(values))), lengths)
        return self.W_o(tf.concat(tf.split(pooled, self.heads), -1))


def _runs(module):
    with tempfile.TemporaryDirectory() as folder:
        reader = tf.train.load_checkpoint(tf.train.Checkpoint(**{PREFIX: module}).save(str(Path(folder) / "state")))
        names = [name for name in reader.get_variable_to_shape_map() if name.startswith(PREFIX)]
        state = {name: reader.get_tensor(name) for name in names}

    def run(*inputs):
        return np.asarray(module(*(None if each is None else tf.constant(each) for each in inputs)))

    return state, run


def additive(random, *sizes):
    return _runs(AdditiveAttention(random, *sizes))


def dot_product(random):
    return _runs(DotProductAttention())


def multi_head(random, *sizes):
    return _runs(MultiHeadAttention(random, *sizes))


class GRUCell(tf.Module):
    """The cell of `tf.keras`, with `reset_after`: kernels with update, reset and candidate side by side."""

    def __init__(self, random, size_in, units):
        super().__init__()
        shapes = {"kernel": (size_in, 3 * units), "recurrent_kernel": (units, 3 * units), "bias": (2, 3 * units)}
        for name, shape in shapes.items():
            setattr(self, name, tf.Variable(random.normal(size=shape) / 2, dtype="float32"))

    def __call__(self, x, state):
        update, reset, candidate = tf.split(x @ self.kernel + self.bias[0], 3, -1)
        own_update, own_reset, own = tf.split(state @ self.recurrent_kernel + self.bias[1], 3, -1)
        update, reset = tf.sigmoid(update + own_update), tf.sigmoid(reset + own_reset)
        return update * state + (1 - update) * tf.tanh(candidate + reset * own)


class Stacked(tf.Module):
    """What holds the cells in `tf.keras.layers.RNN(tf.keras.layers.StackedRNNCells(cells))`."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class Seq2SeqAttentionDecoder(tf.Module):
    def __init__(self, random, words, embed, hidden, layers):
        super().__init__()
        self.attention = AdditiveAttention(random, hidden, hidden, hidden)
        self.embedding = tf.Variable(random.normal(size=(words, embed)), dtype="float32")
        cells = [GRUCell(random, embed + hidden if n == 0 else hidden, hidden) for n in range(layers)]
        self.rnn = Stacked(cell=Stacked(cells=cells))
        self.dense = Dense(random, hidden, words, bias=True)

    def __call__(self, tokens, memory, hidden, valid_lens):
        hidden, outputs = tf.unstack(hidden), []
        for x in tf.unstack(tf.gather(self.embedding, tokens), axis=1):
            context = self.attention(hidden[-1][:, None], memory, memory, valid_lens)
            x = tf.concat((context, x[:, None]), -1)[:, 0]
            for n, cell in enumerate(self.rnn.cell.cells):
                x = hidden[n] = cell(x, hidden[n])
            outputs.append(x)
        return self.dense(tf.stack(outputs, 1))


def decoder(random, *sizes):
    """The textbook's recurrent decoder: from tokens, the encoder's outputs, states (layers, B, H) and lengths."""
    return _runs(Seq2SeqAttentionDecoder(random, *sizes))
