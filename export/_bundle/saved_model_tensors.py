"""Intermediate tensors of a SavedModel, by name; needs TensorFlow, but neither Keras nor the model's code."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .._errors import BundleError, ExportError
from .._format.manifest import SERVING_SIGNATURE
from .._format.names import Arrays, first_line
from .._private_api.tensorflow_internals import freeze_and_inline


class SavedGraph:
    """Graph of `serving_default`, with frozen variables and inlined functions.

    Attributes:
        tensors: Tensors outside loops, and the outputs, by name and in topological order.
    """

    def __init__(self, folder: Path, model: str, layers: Iterable[str]) -> None:
        """Load a SavedModel, or raise `BundleError`. Name scopes contain the names `model` and `layers`."""
        try:
            self._loaded = tf.saved_model.load(str(folder))  # owns the variables that freezing reads
            function = self._loaded.signatures[SERVING_SIGNATURE]
        except Exception as error:  # no SavedModel, or operators that the installed TensorFlow lacks
            raise BundleError(f"TensorFlow cannot load {folder}: {first_line(error)}") from error
        frozen = freeze_and_inline(function)
        self._model = model
        variable_paths = [_split_name(variable.name) for variable in function.variables]
        self._layer_names = {*layers, *(part for path in variable_paths for part in path[:-1])}
        self._inputs = {_split_name(tensor.name)[-1]: tensor for tensor in frozen.inputs if tensor.dtype != tf.resource}
        # TensorFlow flattens structured outputs in the order of their keys.
        outputs = dict(zip(sorted(function.structured_outputs), frozen.outputs, strict=True))
        tensors = {tensor.name: tensor for operation in frozen.graph.get_operations() for tensor in operation.outputs}
        # Large weights are inputs of the traced graph, with the path of the variable as their name in the ONNX file.
        captures = {id(outer): inner.name for outer, inner in function.graph.captures}
        names = [captures.get(id(variable.handle)) for variable in function.variables]
        pairs = zip(variable_paths, names, strict=True)
        weights = {"/".join(path): tensors[name] for path, name in pairs if name in tensors}
        self.tensors: dict[str, Any] = {**weights, **tensors, **outputs}
        # On the CPU, as the golden outputs: products in TF32, the default on a GPU, would differ.
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        self._session = tf.compat.v1.Session(graph=frozen.graph, config=config)

    def run(self, inputs: Mapping[str, np.ndarray], names: Iterable[str]) -> Arrays:
        """Return the values of tensors by name, or raise `ExportError` if TensorFlow cannot run the graph."""
        try:
            fetched: Arrays = self._session.run(
                {name: self.tensors[name] for name in names},
                {tensor.name: inputs[name] for name, tensor in self._inputs.items()},
            )
        except (tf.errors.OpError, ValueError) as error:
            reason = first_line(error)
            raise ExportError(f"TensorFlow cannot run the SavedModel's graph on a golden case: {reason}") from error
        return {name: np.asarray(value) for name, value in fetched.items()}

    def find_layer(self, name: str) -> str:
        """Return the path of the innermost layer whose name scope contains a tensor, or `(model)`."""
        # Tensors have names such as `model_1/encoder_1/dense_1/Tensordot/MatMul`: Keras numbers the scope of a layer,
        # and the scopes of TensorFlow's functions are inside it. The first scope in the model is a layer. An inner
        # scope is a layer if its name is that of an attention layer or is in the path of a variable.
        operation = _find_scoped_operation(self.tensors[name].op)
        scopes = [self._strip_number(scope) for scope in _list_scopes(operation.name)]
        path: list[str] = []
        for scope in scopes[1:] if scopes[:1] == [self._model] else scopes:
            # A function may have the name of its layer, such as `Relu` in a layer `relu`.
            if path and (scope not in self._layer_names or scope == path[-1]):
                break
            path.append(scope)
        return "/".join(path) or "(model)"

    def _strip_number(self, scope: str) -> str:
        stem = re.sub(r"_\d+$", "", scope)
        names = self._layer_names | {self._model}
        return stem if stem in names or scope not in names else scope


def _find_scoped_operation(operation: Any) -> Any:
    """Return the nearest operation with a name scope: a producer of an output, or a consumer of a weight."""
    producer = operation
    while producer.type == "Identity" and not _list_scopes(producer.name):
        producer = producer.inputs[0].op
    consumer = operation
    while not _list_scopes(consumer.name) and consumer.outputs and (consumers := consumer.outputs[0].consumers()):
        consumer = consumers[0]
    return producer if _list_scopes(producer.name) else consumer


def _split_name(name: str) -> list[str]:
    return name.partition(":")[0].split("/")


def _list_scopes(operation: str) -> list[str]:
    """Return the name scopes of an operation, except the scopes of inlined function calls."""
    return [part for part in operation.split("/")[:-1] if not re.search(r"PartitionedCall|^Func$|^(in|out)put$", part)]
