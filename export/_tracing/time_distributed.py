"""Compute `TimeDistributed` layers on all time steps in one batch.

Over an unknown number of steps Keras calls `tf.vectorized_map`, whose graph tf2onnx 1.17 cannot convert ("'NoneType'
object is not subscriptable", or a loop that onnxruntime fails in); over a known one it writes the layer once a step.
Each step of each sequence is an example of its own to the layer within, so they can be so many rows of one batch. Where
they are not, as to a layer that looks at its batch, the outputs differ from Keras's and the export fails.
"""

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
from keras import ops


@contextmanager
def steps_as_rows(layers: Iterable[Any]) -> Iterator[None]:
    """Let the `TimeDistributed` layers among some see all steps as rows for as long as the context lasts."""
    layers = [layer for layer in layers if type(layer) is keras.layers.TimeDistributed]
    for layer in layers:
        layer.call = partial(_call, layer.layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.call


def _call(layer: Any, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
    batch, steps, *sizes = ops.shape(inputs)
    given = {"training": training, "mask": None if mask is None else ops.reshape(mask, (-1, *ops.shape(mask)[2:]))}
    taken = inspect.signature(layer.call).parameters
    known = {name: value for name, value in given.items() if name in taken and (name != "mask" or value is not None)}
    outputs = layer.call(ops.reshape(inputs, (-1, *sizes)), **known)
    return ops.reshape(outputs, (batch, steps, *ops.shape(outputs)[1:]))
