"""The textbook's layers of TensorFlow; each function returns a state and what runs the layer.

The state is read from a checkpoint that TensorFlow writes; `attention` stands before its names.
"""

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from textbook_numpy import textbook_of

PREFIX = "attention"


class Dense(tf.Module):
    def __init__(self, random, size_in, size_out, bias=False):
        super().__init__()
        self.kernel = tf.Variable(random.normal(size=(size_in, size_out)) / 2, dtype="float32")
        self.bias = tf.Variable(random.normal(size=size_out) / 2, dtype="float32") if bias else None

    def __call__(self, inputs):
        outputs = tf.tensordot(tf.constant(inputs), self.kernel, 1)
        return (outputs if self.bias is None else outputs + self.bias).numpy()


class Parts(tf.Module):
    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def state_of(module):
    with tempfile.TemporaryDirectory() as folder:
        reader = tf.train.load_checkpoint(tf.train.Checkpoint(**{PREFIX: module}).save(str(Path(folder) / "state")))
        names = [name for name in reader.get_variable_to_shape_map() if name.startswith(PREFIX)]
        return {name: reader.get_tensor(name) for name in names}


def _dense(random, bias, **sizes):
    layers = {name: Dense(random, *size, bias) for name, size in sizes.items()}
    return state_of(Parts(**layers)), layers


additive, multi_head = textbook_of(_dense)


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


def decoder(random, words, embed, hidden, layers):
    """The textbook's recurrent decoder: from tokens, the encoder's outputs, states (layers, B, H) and lengths.

    Its cells are held as `tf.keras.layers.RNN(tf.keras.layers.StackedRNNCells(cells))` holds them.
    """
    attention = {name: Dense(random, hidden, size) for name, size in (("W_q", hidden), ("W_k", hidden), ("w_v", 1))}
    table = tf.Variable(random.normal(size=(words, embed)), dtype="float32")
    cells = [GRUCell(random, embed + hidden if n == 0 else hidden, hidden) for n in range(layers)]
    dense = Dense(random, hidden, words, bias=True)
    held = Parts(cell=Parts(cells=cells))
    pool, _ = textbook_of(lambda *_, **__: ({}, attention))

    def run(tokens, memory, hidden, valid_lens):
        _, attend = pool(random, 0, 0, 0)
        hidden, outputs = tf.unstack(hidden), []
        for x in tf.unstack(tf.gather(table, tokens), axis=1):
            context = attend(hidden[-1][:, None], memory, memory, valid_lens)
            x = tf.concat((context, x[:, None]), -1)[:, 0]
            for n, cell in enumerate(cells):
                x = hidden[n] = cell(x, hidden[n])
            outputs.append(x)
        return np.asarray(dense(tf.stack(outputs, 1)))

    return state_of(Parts(attention=Parts(**attention), embedding=table, rnn=held, dense=dense)), run
