"""The textbook's layers in TensorFlow; each function returns a state and a function that runs the layer.

The state is read from a checkpoint that TensorFlow writes, with the prefix `attention` of its names.
"""

import tempfile
from pathlib import Path

import tensorflow as tf
from textbook_numpy import build_textbook_layers

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


def read_state(module):
    with tempfile.TemporaryDirectory() as folder:
        reader = tf.train.load_checkpoint(tf.train.Checkpoint(**{PREFIX: module}).save(str(Path(folder) / "state")))
        names = [name for name in reader.get_variable_to_shape_map() if name.startswith(PREFIX)]
        return {name: reader.get_tensor(name) for name in names}


def _build_dense_layers(random, bias, **sizes):
    layers = {name: Dense(random, *size, bias) for name, size in sizes.items()}
    return read_state(Parts(**layers)), layers


build_additive, build_multi_head = build_textbook_layers(_build_dense_layers)
