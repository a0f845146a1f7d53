"""Rounding error limits of golden outputs, measured by perturbed runs.

The effect of rounding depends on the model: a difference of large numbers amplifies it, a saturated sigmoid hides it.
If inputs and weights are perturbed by one unit in the last place (ulp) of the precision, every rounding in the model
changes. The changes of the outputs estimate the error of any correct implementation.

The limit of a float x is

    max(max(FLOOR_ULPS, k) * eps * max(s, u), UNDERFLOW_LIMIT, max(SAFETY_FACTOR, k) * e)

    s    scale of x, the magnitude that its error is compared with (`scale_of`)
    u    usual magnitude of the channel: the median over the cases of the median over the rows
    eps  relative ulp: the largest of the precision, the weights, the inputs and the output
    k    ulps between two correct sums over n positions: SUM_ULPS_PER_TERM * n * min(1, FLOAT32_EPS / eps)
    e    typical error: the largest observed error of x, at least s times the median of observed error / scale in the
         channel, since a single element may by chance stay unchanged in every run

If all terms of a sum are equal, as with a length of 1, every addition rounds in the same direction under every
perturbation. A sequential sum of n terms is then off by up to n / 8 ulps, and two sums differ by up to n / 4 ulps.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from .._format.compare import scale_of, zero_fill_values
from .._format.names import Arrays, Case
from .._golden_cases.golden_cases import LARGE_VALUES
from .._signature.signature import Signature
from .perturbed_runs import PRECISION_EPS, Perturbation, build_runner
from .tie_errors import ObservedErrors

# More runs find larger errors, which allows a smaller SAFETY_FACTOR, but Keras runs on all cases each time.
PERTURBED_RUNS = 3
# Runs for integer and boolean outputs: a perturbation flips a choice in few of the runs.
TIE_RUNS = 10
TIE_ULPS = {"float32": 16, "float16": 4, "int8": 4}
# Few runs miss the largest error: correct files mostly differ by less than a tenth of the limit, seldom by half. A
# coarse precision rounds by half an ulp but is perturbed by a full ulp, so half the factor is enough.
SAFETY_FACTOR = {"float32": 32, "float16": 16, "int8": 16}
FLOOR_ULPS = 8  # functions differ by 1 to 2 ulps, most sums by 3
SUM_ULPS_PER_TERM = 1 / 4
MAX_SUM_TERMS = 1024  # onnxruntime sums more terms in blocks
FLOAT32_EPS = float(np.finfo(np.float32).eps)  # of sums, in every precision
MIN_CHANNEL_ELEMENTS = 8  # for a median; shorter channels share one
UNDERFLOW_LIMIT = 1e-31  # smaller numbers may be flushed to 0


def measure_limits(signature: Signature, cases: Sequence[Case], precision: str) -> list[Case]:
    """Measure the rounding limits of golden cases.

    Args:
        signature: The model; perturbed weights are restored.
        cases: Golden cases; their present limits are ignored.
        precision: Precision of the ONNX file that is compared with them: "float32", "float16" or "int8".

    Returns:
        The cases with `rounding_limits`: float64 arrays of the shapes of the outputs, boolean for integer outputs.
    """
    # Every limit comes from perturbed and unperturbed runs of one implementation in one precision. Outputs of another
    # implementation, or in float64, widen no limit: a layer that computes something else there would excuse any file.
    if not cases:
        return []
    rng = np.random.default_rng(0)
    tie_runs = TIE_RUNS if _has_discrete_outputs(cases[0]) else 0
    runner = build_runner(signature, cases, PERTURBED_RUNS + tie_runs, rng)
    inputs = [case.inputs for case in cases]
    records = [ObservedErrors(outputs) for outputs in runner.base_outputs]
    for _ in range(PERTURBED_RUNS):
        for errors, outputs in zip(records, runner.run(inputs, Perturbation(1, precision, rng)), strict=True):
            errors.record(outputs)
    tie_perturbation = Perturbation(TIE_ULPS[precision], precision, rng)
    saturated_indices = _find_saturated_cases(cases, precision)
    for _ in range(TIE_RUNS if saturated_indices else 0):
        runs = runner.run([inputs[index] for index in saturated_indices], tie_perturbation)
        for index, outputs in zip(saturated_indices, runs, strict=True):
            records[index].record_switched_keys(outputs)
    dtypes = _list_float_dtypes(signature.model, cases[0].inputs)
    eps = max([PRECISION_EPS[precision], *(np.finfo(dtype).eps for dtype in dtypes)])
    limits = _compute_case_limits(cases, records, SAFETY_FACTOR[precision], eps)
    for _ in range(tie_runs):
        for errors, outputs, float_limits in zip(records, runner.run(inputs, tie_perturbation), limits, strict=True):
            errors.record(outputs, float_limits)
    return _attach_limits(cases, records, limits)


def measure_run_limits(cases: Sequence[Case], runs: Iterable[Sequence[Arrays]], safety_factor: int) -> list[Case]:
    """Return cases with the rounding limits of a float32 graph; each of its perturbed `runs` has all outputs."""
    records = [ObservedErrors(case.outputs) for case in cases]
    for run in runs:
        for errors, outputs in zip(records, run, strict=True):
            errors.record(outputs)
    return _attach_limits(cases, records, _compute_case_limits(cases, records, safety_factor, FLOAT32_EPS))


def _attach_limits(cases: Sequence[Case], records: Sequence[ObservedErrors], limits: Sequence[Arrays]) -> list[Case]:
    rows = zip(cases, records, limits, strict=True)
    return [case._replace(rounding_limits=errors.widen(case_limits)) for case, errors, case_limits in rows]


def _compute_case_limits(
    cases: Sequence[Case], records: Sequence[ObservedErrors], safety_factor: int, eps: float
) -> list[Arrays]:
    names = cases[0].outputs
    magnitudes = {name: _compute_usual_magnitudes([case.outputs[name] for case in cases]) for name in names}
    return [
        {
            name: _compute_limits(array, errors.errors[name], safety_factor, magnitudes[name], sum_ulps, eps)
            for name, array in case.outputs.items()
        }
        for case, errors in zip(cases, records, strict=True)
        for sum_ulps in [_estimate_sum_ulps(case)]
    ]


def _find_saturated_cases(cases: Sequence[Case], precision: str) -> list[int]:
    """Return the indices of cases with scores so large that rounding in float16 or int8 can select a different key."""
    return [index for index, case in enumerate(cases) if case.name == LARGE_VALUES] if PRECISION_EPS[precision] else []


def _estimate_sum_ulps(case: Case) -> float:
    """Return the ulps by which two correct sums over the positions of a case may differ, for float32 sums."""
    # Positions are along axes of integers and masks, and along inner axes of floats: features have different weights,
    # so the terms of their sums are not equal. Nor are the elements of images (rank 4).
    arrays = [array for array in (*case.inputs.values(), *case.outputs.values()) if array.ndim < 4]
    shapes = [array.shape[1:-1] if array.dtype.kind == "f" else array.shape[1:] for array in arrays]
    return SUM_ULPS_PER_TERM * min(max((size for shape in shapes for size in shape), default=0), MAX_SUM_TERMS)


def _has_discrete_outputs(case: Case) -> bool:
    return any(array.dtype.kind != "f" for array in case.outputs.values())


def _list_float_dtypes(model: keras.Model, inputs: Arrays) -> list[np.dtype[Any]]:
    names = {str(variable.dtype) for variable in model.weights} | {array.dtype.name for array in inputs.values()}
    return [np.dtype(name) for name in names if name in ("float16", "float32", "float64")]


def _compute_usual_magnitudes(outputs: Sequence[np.ndarray]) -> np.ndarray | float:
    """Return the usual magnitude: shape (channels,), or a scalar if the number of channels differs between cases."""
    medians = [
        np.median(_compute_magnitudes(array).reshape(-1, array.shape[-1] if array.ndim > 1 else 1), 0)
        for array in outputs
        if array.dtype.kind == "f" and array.size
    ]
    if not medians:
        return 0.0
    has_same_channels = len({median.shape for median in medians}) == 1
    return np.median(medians, 0) if has_same_channels else float(np.median([median.min() for median in medians]))


def _compute_magnitudes(array: np.ndarray) -> np.ndarray:
    return zero_fill_values(np.abs(np.nan_to_num(array.astype(np.float64), posinf=0, neginf=0)))


def compute_typical_errors(errors: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the typical errors of this module; all three arrays have the shape of the output."""
    columns = errors.shape[-1] if errors.ndim > 1 else 1
    # Zeros, as in most outputs of a ReLU or a mask, have no error and would make the median 0.
    is_changed = (scale > 0) & (errors > 0)
    ratios = np.divide(errors, scale, out=np.full(errors.shape, np.nan), where=is_changed).reshape(-1, columns)
    pooled_ratios = ratios if len(ratios) >= MIN_CHANNEL_ELEMENTS else ratios.reshape(-1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a channel without errors
        median = np.nan_to_num(np.nanmedian(pooled_ratios, 0, keepdims=True))
    result: np.ndarray = np.maximum(errors, scale * np.broadcast_to(median, ratios.shape).reshape(errors.shape))
    return result


def _compute_limits(
    expected: np.ndarray,
    errors: np.ndarray,
    safety_factor: int,
    usual_magnitude: np.ndarray | float,
    sum_ulps: float,
    eps: float,
) -> np.ndarray:
    """Return the rounding limits of floats, by the formula of this module; the observed errors of other dtypes."""
    # The usual magnitude u is part of the floor because sigmoids of onnxruntime end at 1e-8 instead of 0. A sum inside
    # the model is off by k ulps, so the observed effect of one ulp is multiplied by k.
    if expected.dtype.kind != "f" or expected.size == 0:
        return errors
    expected64 = expected.astype(np.float64)
    largest_eps = max(eps, float(np.finfo(expected.dtype).eps))
    scale = scale_of(expected64)
    scaled_sum_ulps = sum_ulps * min(1.0, FLOAT32_EPS / largest_eps)
    floor_limits = max(FLOOR_ULPS, scaled_sum_ulps) * largest_eps * np.maximum(scale, usual_magnitude)
    measured_limits = max(safety_factor, scaled_sum_ulps) * compute_typical_errors(errors, scale)
    limits: np.ndarray = np.maximum(np.maximum(floor_limits, UNDERFLOW_LIMIT), measured_limits)
    return limits.reshape(expected.shape)
