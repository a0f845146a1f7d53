"""Widen rounding error limits by the effect of reassociated sums and fused operations.

To move what goes in draws no rounding anew where two that are alike cancel. Layer normalization over one feature is
`x * inv + (beta - x * inv)`: Keras rounds both products alike, whatever `x` is, and a runtime that fuses one of them
with its sum does not. So here each is moved by itself, while the model is one graph of TensorFlow.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from .._array_comparison import outputs_match
from .._format.compare import scale_of
from .._format.names import Arrays, Case
from .._private_api.tensorflow_internals import through_traced
from .._signature.keras_messages import quiet_keras
from .._signature.signature import Signature
from .._signature.tensorflow_graph import graph_of_weights
from .rounding_error import typical_errors
from .tie_errors import ObservedErrors

RUNS = 8  # of two numbers that matter, three runs may move both alike each time
MULTIPLE = 4  # of what was seen: each move is a whole unit, where rounding is off by half a one at most
OF_SUMS = 0.5  # units, of the sum of all sizes, for the root of how many numbers are added one after the other
OF_SATURATING = 0.5  # of 1: in onnxruntime sigmoids are off by up to 1.4 units of that, also where they should be 0
NEAR = 0.25  # of a limit; what differs by less was not seen to need more
WHOLE = 2.0**16  # whole numbers up to here are sizes and counts, which are exact
# What optimizers merge, split, fold into others or add in another order.
MERGED = {
    *("Add", "AddN", "AddV2", "AvgPool", "AvgPool3D", "BatchMatMul", "BatchMatMulV2", "BiasAdd", "Conv2D", "Conv3D"),
    *("Conv2DBackpropInput", "Conv3DBackpropInputV2", "Cumsum", "DepthwiseConv2dNative", "Div", "DivNoNan", "Einsum"),
    *("FusedBatchNormV3", "MatMul", "Mean", "Mul", "Prod", "RealDiv", "Reciprocal", "Rsqrt", "Softmax", "Sqrt"),
    *("Square", "SquaredDifference", "Sub", "Sum", "UnsortedSegmentSum"),
}
# Functions that libraries compute with different roundings: a difference of two may be nothing but rounding.
ROUNDED = {"Exp", "Log", "Log1p", "Pow"}
INEXACT = {"Elu", "Erf", "Expm1", "Selu", "Softplus", "Tanh"}  # whole numbers of these are rounded, as 1 of tanh(9)
SUMS = {"Mean": tf.reduce_mean, "Sum": tf.reduce_sum}
SATURATING = "Sigmoid"  # of a layer that calls TensorFlow itself; `perturbed_runs.py` perturbs those of Keras


def with_reordering(signature: Signature, cases: Sequence[Case], near: Collection[str]) -> list[Case]:
    """Return golden cases whose limits hold what another order does, or as they are where that cannot be seen.

    Perturbed runs of the graph are compared with a run of the same graph that is not perturbed. The golden outputs are
    those of another implementation, and a systematic difference from them must not widen a limit.

    Args:
        signature: The model, on TensorFlow.
        cases: Golden cases with their rounding.
        near: The names of those that are moved: a run of many images takes seconds.
    """
    try:
        with quiet_keras():
            run = _perturbed_graph(signature)
            if run is None:
                return list(cases)
            return [_widened(case, run) if case.name in near else case for case in cases]
    except Exception:  # noqa: BLE001 - whatever the code of the user's own layers raises on symbolic tensors
        return list(cases)


def _perturbed_graph(signature: Signature) -> Callable[[Arrays, Sequence[Any], float], Arrays] | None:
    """Return the model as a graph in which each product and sum is perturbed by a number of ulps, its last argument."""
    seeds = iter(range(1, 2**31))

    def change(ulps: Any, op: str, inputs: Any, tensor: Any) -> Any:
        if op not in (*MERGED, *ROUNDED, *INEXACT, SATURATING) or not tensor.dtype.is_floating:
            return tensor
        return _nudged(op, tensor, _size(op, inputs, tensor) * tf.cast(ulps, tensor.dtype), next(seeds))

    return graph_of_weights(signature, [], lambda ulps: through_traced(partial(change, ulps)))


def _size(op: str, inputs: Sequence[Any], tensor: Any) -> Any:
    """Return what a result is seen against: itself, or what is added, of which the large may cancel."""
    size = tf.abs(tensor)
    if op == SATURATING:
        return size + OF_SATURATING
    if op not in SUMS:
        return size
    added = SUMS[op](tf.abs(inputs[0]), inputs[1])
    count = tf.cast(tf.size(inputs[0]) / tf.maximum(tf.size(tensor), 1), tensor.dtype)
    return tf.maximum(size, tf.reshape(added, tf.shape(tensor)) * OF_SUMS * tf.sqrt(count))


def _nudged(op: str, tensor: Any, size: Any, seed: int) -> Any:
    """Return floats up or down by a unit in the last place of a size, at random, each time otherwise."""
    unit = size * float(np.finfo(tensor.dtype.as_numpy_dtype).eps)
    drawn = tf.raw_ops.RandomUniform(shape=tf.shape(tensor), dtype=tf.float32, seed=seed, seed2=seed)
    exact = (tf.round(tensor) == tensor) & (tf.abs(tensor) <= tf.cast(WHOLE, tensor.dtype))
    exact = (exact & (op not in (*INEXACT, SATURATING))) | ~tf.math.is_finite(unit)
    moved = tf.where(exact, tensor, tensor + tf.where(drawn < 0.5, -unit, unit))
    moved.set_shape(tensor.shape)
    return moved


def _widened(case: Case, run: Callable[[Arrays, Sequence[Any], float], Arrays]) -> Case:
    unperturbed = run(case.inputs, [], 0)
    if not outputs_match(run(case.inputs, [], 0), unperturbed):
        return case  # a layer draws random numbers in the graph, which are no rounding
    observed = ObservedErrors(unperturbed)
    for _ in range(RUNS):
        observed.record(run(case.inputs, [], 1))
    limits: Arrays = {}
    for name, expected in case.outputs.items():
        if unperturbed[name].shape == expected.shape and expected.size:
            errors = observed.errors[name]
            if expected.dtype.kind == "f":
                scale = scale_of(unperturbed[name].astype(np.float64))
                errors = MULTIPLE * typical_errors(errors, scale).reshape(expected.shape)
            limits[name] = np.maximum(case.rounding.get(name, errors), errors)
    return case._replace(rounding={**case.rounding, **observed.widened(limits)})
