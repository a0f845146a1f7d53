"""Traced TensorFlow graphs of a Keras model, which run faster than eager calls."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._format.dtypes import decode_strings
from .._format.names import Arrays
from .signature import InputSpec, Signature

# TensorFlow operators that call a function or Python code, which cannot be perturbed.
CALL_OPS = ("PartitionedCall", "StatefulPartitionedCall", "PyFunc", "PyFuncStateless", "EagerPyFunc")

Tracing = Callable[[], contextlib.AbstractContextManager[Any]]


def build_endpoint(
    signature: Signature, tracing: Tracing = contextlib.nullcontext
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return the function to trace, from inputs to outputs by name; `tracing` is a context around the call."""

    def serve(inputs: Mapping[str, Any]) -> dict[str, Any]:
        with tracing():
            # Without the identity, an output that is an input would be no separate tensor.
            return {name: tf.identity(tensor) for name, tensor in signature.call(inputs).items()}

    return serve


def build_tensor_specs(inputs: Iterable[InputSpec]) -> dict[str, tf.TensorSpec]:
    """Return the tensor specs of inputs by name, for tracing."""
    return {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in inputs}


def trace_caller(serve: Any, signature: Signature) -> Any:
    """Trace a function that calls `serve`, as in a SavedModel, so that tensors have the same names."""
    outer = tf.function(
        lambda inputs: serve(inputs), input_signature=[build_tensor_specs(signature.inputs)], autograph=False
    )
    return outer.get_concrete_function()


def _trace(signature: Signature, tracing: Tracing = contextlib.nullcontext) -> Any:
    serve = build_endpoint(signature, tracing)
    function = tf.function(serve, input_signature=[build_tensor_specs(signature.inputs)], autograph=False)
    # A call of `function` itself would count as a retrace, about which TensorFlow warns.
    return function.get_concrete_function()


def trace_runner(signature: Signature, tracing: Tracing = contextlib.nullcontext) -> Callable[[Arrays], Arrays]:
    """Trace a model in a context, and return a function that runs its graph."""
    function = _trace(signature, tracing)

    def run(inputs: Arrays) -> Arrays:
        outputs = function({name: tf.constant(array) for name, array in inputs.items()})
        return {name: decode_strings(tensor.numpy()) for name, tensor in outputs.items()}

    return run


def _has_calls(signature: Signature) -> bool:
    """Return True if the graph of a model calls Python code, or functions that cannot be inlined."""
    definition = _trace(signature, _inline_functions).graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    return any(node.op in CALL_OPS for node in nodes)


@contextlib.contextmanager
def _inline_functions() -> Iterator[None]:
    """Trace the `tf.function` of a layer into the outer graph, without changing the cached traces of the layer."""
    was_eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(was_eager)


def trace_weight_graph(
    signature: Signature, weights: Sequence[Any], change: Callable[[Any], contextlib.AbstractContextManager[None]]
) -> Callable[[Arrays, Sequence[Any], float], Arrays] | None:
    """Trace a model with `weights` as inputs of the graph, in the context that `change` returns for a scalar.

    Returns:
        A function of inputs by name, values of the weights and the scalar, which returns outputs by name. `None` if the
        graph has calls of functions that cannot be inlined: a patch does not reach the operations inside.
    """
    if _has_calls(signature):
        return None
    dtypes = [keras.backend.standardize_dtype(variable.dtype) for variable in weights]
    weight_specs = [tf.TensorSpec(variable.shape, dtype) for variable, dtype in zip(weights, dtypes, strict=True)]
    signatures = [build_tensor_specs(signature.inputs), weight_specs, tf.TensorSpec((), tf.float32)]

    def serve(inputs: Mapping[str, Any], values: Sequence[Any], scalar: Any) -> dict[str, Any]:
        with keras.StatelessScope(state_mapping=list(zip(weights, values, strict=True))), change(scalar):
            return build_endpoint(signature, _inline_functions)(inputs)

    function = tf.function(serve, input_signature=signatures, autograph=False).get_concrete_function()

    def run(inputs: Arrays, values: Sequence[Any], scalar: float) -> Arrays:
        tensors = {name: tf.constant(array) for name, array in inputs.items()}
        outputs = function(tensors, list(values), tf.constant(scalar, tf.float32))
        return {name: decode_strings(tensor.numpy()) for name, tensor in outputs.items()}

    return run


def draw_shares_in_graph(tensor: Any, rng: np.random.Generator) -> Any:
    """Return +-1 for the tensor plus uniform(-2, 2) for each element, drawn whenever the tensor is computed."""
    # Explicit seeds: the draws depend neither on TensorFlow's global seed nor on the order of loop iterations.
    seeds = [int(seed) for seed in rng.integers(1, 2**31, size=4)]
    with tf.control_dependencies([tensor]):
        common = tf.raw_ops.RandomUniform(shape=[1], dtype=tf.float32, seed=seeds[0], seed2=seeds[1])
        elementwise = tf.raw_ops.RandomUniform(shape=tf.shape(tensor), dtype=tf.float32, seed=seeds[2], seed2=seeds[3])
    return tf.where(common[0] < 0.5, -1.0, 1.0) + 4 * elementwise - 2
