"""Compute `TimeDistributed` layers on all time steps in one batch."""

# For an unknown number of steps Keras calls `tf.vectorized_map`, whose graph tf2onnx 1.17 cannot convert ("'NoneType'
# object is not subscriptable", or a loop in which onnxruntime fails); for a static one it traces the layer once per
# step. The inner layer treats each step as an example, so (B, T, ...) can be one batch (B * T, ...). For a layer that
# mixes the examples of a batch the outputs differ from Keras, and the parity check fails the export.

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
from keras import ops


@contextmanager
def merge_steps_into_batch(layers: Iterable[Any]) -> Iterator[None]:
    """Patch the `TimeDistributed` layers among `layers` within the context: time steps become rows of the batch."""
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
    options = {"training": training}
    if mask is not None:
        options["mask"] = ops.reshape(mask, (-1, *ops.shape(mask)[2:]))
    parameters = inspect.signature(layer.call).parameters
    options = {name: value for name, value in options.items() if name in parameters}
    outputs = layer.call(ops.reshape(inputs, (-1, *sizes)), **options)
    return ops.reshape(outputs, (batch, steps, *ops.shape(outputs)[1:]))
