"""Rounding limits for reassociated sums and fused operations (Monte Carlo arithmetic).

Perturbed inputs do not reveal equal roundings that cancel. Layer normalization over one feature computes
`x * inv + (beta - x * inv)`: Keras rounds both products to the same float for every `x`, but a runtime that fuses one
product with its sum rounds only the other. So the model runs as one TensorFlow graph in which the result y of each
such operation is perturbed independently by one ulp of a magnitude m, to y + m eps or y - m eps:

    max(|y|, SUM_ULPS_PER_SQRT_TERM * sqrt(n) * sum |x_i|)    of a sum over n terms; mean |x_i| for a mean
    |y| + SIGMOID_MIN_MAGNITUDE                               of a sigmoid
    |y|                                                       of all others

Rounding errors of n additions grow with sqrt(n) and with the magnitudes of the terms, which may cancel in the sum. The
limit of a float is at least SAFETY_FACTOR times its typical error in these runs (`rounding_error.py`).
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from .._array_comparison import outputs_match
from .._format.compare import scale_of
from .._format.names import Arrays, Case
from .._private_api.tensorflow_internals import intercept_traced_ops
from .._signature.keras_messages import silence_keras
from .._signature.signature import Signature
from .._signature.tensorflow_graph import trace_weight_graph
from .rounding_error import compute_typical_errors
from .tie_errors import ObservedErrors

# Perturbations of two results cancel in a run with probability 1/2, so in all of 3 runs with 1/8, of 8 with 1/256.
PERTURBED_RUNS = 8
# Smaller than the factor in `rounding_error.py`: a perturbation is a full ulp, a rounding error half an ulp at most.
SAFETY_FACTOR = 4
SUM_ULPS_PER_SQRT_TERM = 0.5
SIGMOID_MIN_MAGNITUDE = 0.5  # see `SATURATION_ULPS` in `perturbed_runs.py`
# Cases are measured again from this share of a limit: no smaller difference needed wider limits.
REMEASURED_LIMIT_SHARE = 0.25
MAX_EXACT_INTEGER = 2.0**16  # sizes and counts are exact everywhere
# Operators that optimizers fuse, split, fold into others or reassociate.
REASSOCIATED_OPS = {
    *("Add", "AddN", "AddV2", "AvgPool", "AvgPool3D", "BatchMatMul", "BatchMatMulV2", "BiasAdd", "Conv2D", "Conv3D"),
    *("Conv2DBackpropInput", "Conv3DBackpropInputV2", "Cumsum", "DepthwiseConv2dNative", "Div", "DivNoNan", "Einsum"),
    *("FusedBatchNormV3", "MatMul", "Mean", "Mul", "Prod", "RealDiv", "Reciprocal", "Rsqrt", "Softmax", "Sqrt"),
    *("Square", "SquaredDifference", "Sub", "Sum", "UnsortedSegmentSum"),
}
# Functions that libraries round differently, so that a difference of two may consist of rounding errors only.
ELEMENTARY_FUNCTIONS = {"Exp", "Log", "Log1p", "Pow"}
INEXACT_AT_INTEGERS = {"Elu", "Erf", "Expm1", "Selu", "Softplus", "Tanh"}  # tanh(9) is rounded to 1
REDUCTIONS = {"Mean": tf.reduce_mean, "Sum": tf.reduce_sum}
SIGMOID = "Sigmoid"  # of TensorFlow; `perturbed_runs.py` has Keras's
PERTURBED_OPS = {*REASSOCIATED_OPS, *ELEMENTARY_FUNCTIONS, *INEXACT_AT_INTEGERS, SIGMOID}


def widen_for_reassociation(signature: Signature, cases: Sequence[Case], case_names: Collection[str]) -> list[Case]:
    """Widen the limits of golden cases by the errors of reassociation; cases are unchanged if tracing fails.

    Args:
        signature: The model, on TensorFlow.
        cases: Golden cases with rounding limits.
        case_names: Names of the cases to measure; a run of a case with many images takes seconds.
    """
    # The unperturbed run is one of the same graph: a difference between implementations must not widen a limit.
    try:
        with silence_keras():
            run = _build_perturbed_graph(signature)
            if run is None:
                return list(cases)
            return [_widen_limits(case, run) if case.name in case_names else case for case in cases]
    except Exception:  # noqa: BLE001 - layers of the user may raise anything on symbolic tensors
        return list(cases)


def _build_perturbed_graph(signature: Signature) -> Callable[[Arrays, Sequence[Any], float], Arrays] | None:
    """Trace a graph in which each product and sum is perturbed by a number of ulps, the last argument of the result."""
    seeds = iter(range(1, 2**31))

    def perturb_result(ulps: Any, op: str, inputs: Any, tensor: Any) -> Any:
        if op not in PERTURBED_OPS or not tensor.dtype.is_floating:
            return tensor
        magnitude = _compute_magnitude(op, inputs, tensor) * tf.cast(ulps, tensor.dtype)
        return _perturb_tensor(op, tensor, magnitude, next(seeds))

    return trace_weight_graph(signature, [], lambda ulps: intercept_traced_ops(partial(perturb_result, ulps)))


def _compute_magnitude(op: str, inputs: Sequence[Any], tensor: Any) -> Any:
    """Return the magnitude m of the formula of this module, a tensor of the shape of `tensor`."""
    magnitude = tf.abs(tensor)
    if op == SIGMOID:
        return magnitude + SIGMOID_MIN_MAGNITUDE
    if op not in REDUCTIONS:
        return magnitude
    sums = REDUCTIONS[op](tf.abs(inputs[0]), inputs[1])
    num_terms = tf.cast(tf.size(inputs[0]) / tf.maximum(tf.size(tensor), 1), tensor.dtype)
    return tf.maximum(magnitude, tf.reshape(sums, tf.shape(tensor)) * SUM_ULPS_PER_SQRT_TERM * tf.sqrt(num_terms))


def _perturb_tensor(op: str, tensor: Any, magnitude: Any, seed: int) -> Any:
    """Return a tensor with each element changed by one ulp of its magnitude, up or down; exact integers stay."""
    ulp = magnitude * float(np.finfo(tensor.dtype.as_numpy_dtype).eps)
    uniform = tf.raw_ops.RandomUniform(shape=tf.shape(tensor), dtype=tf.float32, seed=seed, seed2=seed)
    is_exact = (tf.round(tensor) == tensor) & (tf.abs(tensor) <= tf.cast(MAX_EXACT_INTEGER, tensor.dtype))
    is_exact = (is_exact & (op not in (*INEXACT_AT_INTEGERS, SIGMOID))) | ~tf.math.is_finite(ulp)
    result = tf.where(is_exact, tensor, tensor + tf.where(uniform < 0.5, -ulp, ulp))
    result.set_shape(tensor.shape)
    return result


def _widen_limits(case: Case, run: Callable[[Arrays, Sequence[Any], float], Arrays]) -> Case:
    base_outputs = run(case.inputs, [], 0)
    if not outputs_match(run(case.inputs, [], 0), base_outputs):
        return case  # a layer draws random numbers in the graph, whose effect must not widen a limit
    observed_errors = ObservedErrors(base_outputs)
    for _ in range(PERTURBED_RUNS):
        observed_errors.record(run(case.inputs, [], 1))
    limits: Arrays = {}
    for name, expected in case.outputs.items():
        if base_outputs[name].shape == expected.shape and expected.size:
            errors = observed_errors.errors[name]
            if expected.dtype.kind == "f":
                scale = scale_of(base_outputs[name].astype(np.float64))
                errors = SAFETY_FACTOR * compute_typical_errors(errors, scale).reshape(expected.shape)
            limits[name] = np.maximum(case.rounding_limits.get(name, errors), errors)
    return case._replace(rounding_limits={**case.rounding_limits, **observed_errors.widen(limits)})
