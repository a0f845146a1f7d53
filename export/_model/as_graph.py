"""A Keras model as one graph of TensorFlow, a run of which takes a fraction of what its operations take one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._standalone.verify import Arrays
from .signature import InputSpec, Signature

CALLS = ("PartitionedCall", "StatefulPartitionedCall")

Tracing = Callable[[], contextlib.AbstractContextManager[Any]]


def endpoint(
    signature: Signature, tracing: Tracing = contextlib.nullcontext
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the function from inputs to outputs, by name, that is traced, in a context."""

    def serve(inputs: Mapping[str, Any]) -> dict[str, Any]:
        with tracing():
            # identity: an input handed straight through would otherwise be no output of its own
            return {name: tf.identity(tensor) for name, tensor in signature.call(inputs).items()}

    return serve


def specs_of(inputs: Iterable[InputSpec]) -> dict[str, tf.TensorSpec]:
    """Return what TensorFlow must know of inputs to trace a function of them, by name."""
    return {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in inputs}


def graph_of(signature: Signature) -> Callable[[Arrays], Arrays] | None:
    """Return the function that runs the model of a signature, or `None` if it holds what `tf.function` traced before.

    To trace that again, with other things in it, would change what the model itself does from then on.
    """
    serve = tf.function(endpoint(signature), input_signature=[specs_of(signature.inputs)], autograph=False)
    function = serve.get_concrete_function()
    definition = function.graph.as_graph_def()
    nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
    if any(node.op in CALLS for node in nodes):
        return None
    return lambda inputs: _arrays(function(_tensors(inputs)))


def graph_of_weights(
    signature: Signature, weights: Sequence[Any], change: Callable[[Any], contextlib.AbstractContextManager[None]]
) -> Callable[[Arrays, Sequence[Any], float], Arrays]:
    """Return the function that runs the model of a signature with other weights, which are no part of the graph.

    Args:
        signature: That of the model.
        weights: The variables whose values are given.
        change: Gives the context to trace in, for a number that is given too.
    """
    given = [tf.TensorSpec(variable.shape, keras.backend.standardize_dtype(variable.dtype)) for variable in weights]
    signatures = [specs_of(signature.inputs), given, tf.TensorSpec((), tf.float32)]

    def serve(inputs: Mapping[str, Any], values: Sequence[Any], number: Any) -> dict[str, Any]:
        with keras.StatelessScope(state_mapping=list(zip(weights, values, strict=True))), change(number):
            return endpoint(signature)(inputs)

    function = tf.function(serve, input_signature=signatures, autograph=False).get_concrete_function()
    return lambda inputs, values, number: _arrays(
        function(_tensors(inputs), list(values), tf.constant(number, tf.float32))
    )


def shares_in_graph(found: Any, rng: np.random.Generator) -> Any:
    """Return numbers that are drawn anew at each run: -1 or 1 for all of a tensor, and from -2 to 2 for each in it."""
    for_all, for_each = map(int, rng.integers(2**31, size=2))
    sign = tf.where(tf.random.uniform((), seed=for_all) < 0.5, -1.0, 1.0)
    return sign + tf.random.uniform(tf.shape(found), -2, 2, seed=for_each)


def _tensors(inputs: Arrays) -> dict[str, Any]:
    return {name: tf.constant(array) for name, array in inputs.items()}


def _arrays(outputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in outputs.items()}
