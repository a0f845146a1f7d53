"""Fetch intermediate tensors of a SavedModel by name; needs only TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from .._errors import BundleError, ExportError
from .._format.manifest import SERVING_SIGNATURE
from .._format.names import Arrays
from .._private_api.tensorflow_internals import with_constants


class SavedGraph:
    """The graph of `serving_default`, its variables frozen and its functions inlined.

    Attributes:
        tensors: The tensor each name stands for: those outside loops, and the outputs under their own names. In the
            order in which the model computes them.
    """

    def __init__(self, folder: Path, model: str, layers: Iterable[str]) -> None:
        """Load and freeze.

        Args:
            folder: The SavedModel.
            model: The model's name, which begins the name scopes.
            layers: Names of layers that are known.

        Raises:
            BundleError: TensorFlow cannot load it, or it has no `serving_default`.
        """
        try:
            self._loaded = tf.saved_model.load(str(folder))  # must outlive freezing, which reads its variables
            function = self._loaded.signatures[SERVING_SIGNATURE]
        except Exception as error:
            # missing, not a SavedModel, or of ops that this TensorFlow does not have
            raise BundleError(f"TensorFlow cannot load {folder}: {str(error).partition(chr(10))[0]}") from error
        frozen = with_constants(function)
        self._model = model
        self._known = {*layers, *(part for v in function.variables for part in _parts(v.name)[:-1])}
        self._inputs = {_parts(tensor.name)[-1]: tensor for tensor in frozen.inputs if tensor.dtype != tf.resource}
        outputs = dict(zip(sorted(function.structured_outputs), frozen.outputs, strict=True))  # flattened by key
        inner = {tensor.name: tensor for operation in frozen.graph.get_operations() for tensor in operation.outputs}
        weights = {tensor.name: _parts(v.name) for v, tensor in _captured(function) if tensor.name in inner}
        named = {"/".join(parts): inner[tensor] for tensor, parts in weights.items()}  # as large ones are in ONNX
        self.tensors: dict[str, Any] = {**named, **inner, **outputs}
        # on the CPU: that is what the golden outputs were made on, and TF32 would be a difference of its own
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        self._session = tf.compat.v1.Session(graph=frozen.graph, config=config)

    def run(self, inputs: Mapping[str, np.ndarray], names: Iterable[str]) -> Arrays:
        """Return the tensors of these names.

        Raises:
            ExportError: TensorFlow cannot run the graph on these inputs.
        """
        try:
            fetched: Arrays = self._session.run(
                {name: self.tensors[name] for name in names},
                {tensor.name: inputs[name] for name, tensor in self._inputs.items()},
            )
        except (tf.errors.OpError, ValueError) as error:
            message = str(error).partition("\n")[0]
            raise ExportError(f"TensorFlow cannot run the SavedModel's graph on a golden case: {message}") from error
        return {name: np.asarray(value) for name, value in fetched.items()}

    def layer(self, name: str) -> str:
        """Return the path of the layer whose name scope a tensor is in, as far as names tell; `(model)` for none.

        Scopes are `model_1/encoder_1/dense_1/Tensordot/MatMul`: Keras numbers each layer's scope, and below it are the
        scopes of TensorFlow's own functions. The first scope in the model is a layer; a further one is where its name
        is that of a layer with weights.
        """
        operation = _scoped(self.tensors[name].op)
        scopes = [self._unnumbered(scope) for scope in _scopes(operation.name)]
        path: list[str] = []
        for scope in scopes[1:] if scopes[:1] == [self._model] else scopes:
            if path and (scope not in self._known or scope == path[-1]):  # a layer may be called as a function is
                break
            path.append(scope)
        return "/".join(path) or "(model)"

    def _unnumbered(self, scope: str) -> str:
        stem = re.sub(r"_\d+$", "", scope)
        known = self._known | {self._model}
        return stem if stem in known or scope not in known else scope


def _captured(function: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each variable of a concrete function with the tensor that it is within."""
    within = {id(outside): inside for outside, inside in function.graph.captures}
    yield from (
        (variable, within[id(variable.handle)]) for variable in function.variables if id(variable.handle) in within
    )


def _scoped(operation: Any) -> Any:
    """Return the nearest operation that has a scope: what hands on an output, or gets a weight."""
    made = operation
    while made.type == "Identity" and not _scopes(made.name):
        made = made.inputs[0].op
    used = operation
    while not _scopes(used.name) and used.outputs and (consumers := used.outputs[0].consumers()):
        used = consumers[0]
    return made if _scopes(made.name) else used


def _parts(name: str) -> list[str]:
    return name.partition(":")[0].split("/")


def _scopes(operation: str) -> list[str]:
    """Return the name scopes of an operation without those of calls that were inlined."""
    return [part for part in operation.split("/")[:-1] if not re.search(r"PartitionedCall|^Func$|^(in|out)put$", part)]
