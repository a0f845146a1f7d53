"""Weights too large for one protobuf: traced as inputs of the graph, stored as ONNX external data.

A protobuf ends at 2 GiB, the frozen graph and the ONNX file alike, and the way around it in tf2onnx 1.17
(`large_model=True`) calls `np.product`, which NumPy 2 no longer has. So the large weights do not pass through tf2onnx:
the model is traced with them as inputs, and these become initializers whose data lies in a second file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import tensorflow as tf

from .._model.signature import Signature
from .traced import Weights

LIMIT = 2**31 - 2**27  # bytes of weights that still fit one protobuf together with the graph
LARGE = 2**20  # bytes from which a weight is stored outside
PREFIX = "keras_attn_weight_"
DATA = "model.onnx.data"
_PAGE = 4096  # onnxruntime maps weights from the file when they start at a page


def is_large(model: keras.Model) -> bool:
    """Tell whether the weights of a model pass what one protobuf holds."""
    return sum(_bytes(variable) for variable in model.variables) > LIMIT


def function_of_weights(
    model: keras.Model, signature: Signature, tracing: Callable[[], Any] = contextlib.nullcontext
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a TensorFlow function of the model's inputs and its large weights, and these weights by input name.

    Args:
        model: The model.
        signature: Its signature.
        tracing: Gives the context in which the model is traced.
    """
    large = {f"{PREFIX}{n}": v for n, v in enumerate(model.variables) if _bytes(v) >= LARGE}

    def serve(inputs: Mapping[str, Any]) -> dict[str, Any]:
        with (
            tracing(),
            keras.StatelessScope(state_mapping=[(variable, inputs[name]) for name, variable in large.items()]),
        ):
            return {name: tf.identity(tensor) for name, tensor in signature.call(inputs).items()}

    specs = {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in signature.inputs}
    specs |= {name: tf.TensorSpec(variable.shape, variable.dtype, name=name) for name, variable in large.items()}
    function = tf.function(serve, input_signature=[specs], autograph=False).get_concrete_function()
    return function, {name: keras.ops.convert_to_numpy(variable) for name, variable in large.items()}


def refer_to(model: onnx.ModelProto, weights: Weights) -> None:
    """Turn the inputs of a traced model that are weights into initializers with external data, in place."""
    kept = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for name, array, offset in _layout(weights):
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
        for key, value in (("location", DATA), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.append(tensor)


def write_data(folder: Path, weights: Weights) -> None:
    """Write the file that `refer_to` refers to, if there are weights for it."""
    if not weights:
        return
    with (folder / DATA).open("wb") as file:
        for _, array, offset in _layout(weights):
            file.seek(offset)
            np.ascontiguousarray(array).tofile(file)


def _layout(weights: Weights) -> Iterator[tuple[str, np.ndarray, int]]:
    offset = 0
    for name, array in weights.items():
        yield name, array, offset
        offset += -(-array.nbytes // _PAGE) * _PAGE


def _bytes(variable: Any) -> int:
    return int(np.prod(variable.shape)) * int(tf.as_dtype(variable.dtype).size)
