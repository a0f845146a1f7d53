"""Run a Keras model as one traced TensorFlow graph, for speed."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._format.dtypes import decoded
from .._format.names import Arrays
from .signature import InputSpec, Signature

# calls of functions, and of Python
CALLS = ("PartitionedCall", "StatefulPartitionedCall", "PyFunc", "PyFuncStateless", "EagerPyFunc")

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


def called_from_outside(serve: Any, signature: Signature) -> Any:
    """Return a concrete function that calls `serve`, as in a SavedModel, so that tensors have the same names."""
    outer = tf.function(lambda inputs: serve(inputs), input_signature=[specs_of(signature.inputs)], autograph=False)
    return outer.get_concrete_function()


def _traced(signature: Signature, tracing: Tracing = contextlib.nullcontext) -> Any:
    serve = endpoint(signature, tracing)
    function = tf.function(serve, input_signature=[specs_of(signature.inputs)], autograph=False)  # as Keras has it
    return function.get_concrete_function()  # to call `function` counts as a trace too many, of which it warns


def graph_run(signature: Signature, tracing: Tracing = contextlib.nullcontext) -> Callable[[Arrays], Arrays]:
    """Trace a model in a context, and return what runs its graph."""
    traced = _traced(signature, tracing)

    def run(inputs: Arrays) -> Arrays:
        outputs = traced({name: tf.constant(array) for name, array in inputs.items()})
        return {name: decoded(tensor.numpy()) for name, tensor in outputs.items()}

    return run


def _has_calls(signature: Signature) -> bool:
    """Return True if the graph of a model calls functions that cannot be inlined, or Python."""
    definition = _traced(signature, _inlined_functions).graph.as_graph_def()
    nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
    return any(node.op in CALLS for node in nodes)


@contextlib.contextmanager
def _inlined_functions() -> Iterator[None]:
    """Trace the `tf.function` of a layer into the graph around the call, and leave the layer's own traces unchanged."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def graph_of_weights(
    signature: Signature, weights: Sequence[Any], change: Callable[[Any], contextlib.AbstractContextManager[None]]
) -> Callable[[Arrays, Sequence[Any], float], Arrays] | None:
    """Return the function that runs the model of a signature with other weights, which are no part of the graph.

    Operations in functions that are not inlined cannot be perturbed from outside: a graph with such calls is no use,
    and the result is `None`.

    Args:
        signature: That of the model.
        weights: The variables whose values are given.
        change: Gives the context to trace in, for a number that is given too.
    """
    if _has_calls(signature):
        return None
    given = [tf.TensorSpec(variable.shape, keras.backend.standardize_dtype(variable.dtype)) for variable in weights]
    signatures = [specs_of(signature.inputs), given, tf.TensorSpec((), tf.float32)]

    def serve(inputs: Mapping[str, Any], values: Sequence[Any], number: Any) -> dict[str, Any]:
        with keras.StatelessScope(state_mapping=list(zip(weights, values, strict=True))), change(number):
            return endpoint(signature, _inlined_functions)(inputs)

    function = tf.function(serve, input_signature=signatures, autograph=False).get_concrete_function()

    def run(inputs: Arrays, values: Sequence[Any], number: float) -> Arrays:
        tensors = {name: tf.constant(array) for name, array in inputs.items()}
        outputs = function(tensors, list(values), tf.constant(number, tf.float32))
        return {name: decoded(tensor.numpy()) for name, tensor in outputs.items()}

    return run


def shares_in_graph(found: Any, rng: np.random.Generator) -> Any:
    """Return numbers that are drawn anew whenever a tensor is computed: -1 or 1 for all of it, -2 to 2 for each number.

    They hang on `rng` alone: not on the seed that a user gave TensorFlow, nor on which step of a loop runs first.
    """
    seeds = [int(seed) for seed in rng.integers(1, 2**31, size=4)]
    with tf.control_dependencies([found]):
        for_all = tf.raw_ops.RandomUniform(shape=[1], dtype=tf.float32, seed=seeds[0], seed2=seeds[1])
        for_each = tf.raw_ops.RandomUniform(shape=tf.shape(found), dtype=tf.float32, seed=seeds[2], seed2=seeds[3])
    return tf.where(for_all[0] < 0.5, -1.0, 1.0) + 4 * for_each - 2
