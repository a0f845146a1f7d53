"""Fetch intermediate tensors of a SavedModel by name; needs only TensorFlow."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .._errors import BundleError, ExportError
from .._format.manifest import SERVING_SIGNATURE
from .._format.names import Arrays, first_line
from .._private_api.tensorflow_internals import with_constants


class SavedGraph:
    """The graph of `serving_default`, with frozen variables and inlined functions.

    Attributes:
        tensors: Tensors outside loops by name, and the outputs by their names, in the order of computation.
    """

    def __init__(self, folder: Path, model: str, layers: Iterable[str]) -> None:
        """Load a SavedModel, or raise a `BundleError`; the names of the model and of layers are in name scopes."""
        try:
            self._loaded = tf.saved_model.load(str(folder))  # must outlive freezing, which reads its variables
            function = self._loaded.signatures[SERVING_SIGNATURE]
        except Exception as error:  # missing, not a SavedModel, or operators that this TensorFlow lacks
            raise BundleError(f"TensorFlow cannot load {folder}: {first_line(error)}") from error
        frozen = with_constants(function)
        self._model = model
        self._layer_names = {*layers, *(part for v in function.variables for part in _split_name(v.name)[:-1])}
        self._inputs = {_split_name(tensor.name)[-1]: tensor for tensor in frozen.inputs if tensor.dtype != tf.resource}
        outputs = dict(zip(sorted(function.structured_outputs), frozen.outputs, strict=True))  # flattened by key
        inner = {tensor.name: tensor for operation in frozen.graph.get_operations() for tensor in operation.outputs}
        captures = {id(outer): inner.name for outer, inner in function.graph.captures}
        weights = [("/".join(_split_name(v.name)), captures.get(id(v.handle))) for v in function.variables]
        weights_by_path = {
            path: inner[name] for path, name in weights if name in inner
        }  # by the names of large weights in ONNX
        self.tensors: dict[str, Any] = {**weights_by_path, **inner, **outputs}
        # on the CPU, as the golden outputs: TF32 would be a difference of its own
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        self._session = tf.compat.v1.Session(graph=frozen.graph, config=config)

    def run(self, inputs: Mapping[str, np.ndarray], names: Iterable[str]) -> Arrays:
        """Return tensors by name, or raise an `ExportError` if TensorFlow cannot run the graph."""
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
        """Return the path of the layer whose name scope contains a tensor; `(model)` if there is none.

        Names are `model_1/encoder_1/dense_1/Tensordot/MatMul`: Keras numbers the scope of a layer, which contains the
        scopes of TensorFlow's functions. The first scope in the model is a layer; a further scope is a layer if a layer
        with weights has its name.
        """
        operation = _find_scoped_operation(self.tensors[name].op)
        scopes = [self._strip_number(scope) for scope in _list_scopes(operation.name)]
        path: list[str] = []
        for scope in scopes[1:] if scopes[:1] == [self._model] else scopes:
            if path and (
                scope not in self._layer_names or scope == path[-1]
            ):  # a layer may have the name of a function
                break
            path.append(scope)
        return "/".join(path) or "(model)"

    def _strip_number(self, scope: str) -> str:
        stem = re.sub(r"_\d+$", "", scope)
        names = self._layer_names | {self._model}
        return stem if stem in names or scope not in names else scope


def _find_scoped_operation(operation: Any) -> Any:
    """Return the nearest operation with a scope: the producer of an output, or the consumer of a weight."""
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
    """Return the name scopes of an operation without those of calls that were inlined."""
    return [part for part in operation.split("/")[:-1] if not re.search(r"PartitionedCall|^Func$|^(in|out)put$", part)]
