"""Rounding error limits of golden outputs, measured by perturbed runs.

How much rounding changes an output depends on the model alone: a difference of large numbers loses nearly all digits, a
saturated sigmoid hides every error. Inputs and weights perturbed by one unit in the last place (ulp) change every
rounding on the way, those of sums and functions too, so that the outputs differ by what no exporter and no machine can
be held to. In float16 and int8 the ulp is that of the precision.

The limit of a float x with scale s (`scale_of`), usual size u of its channel, and eps of its precision is

    max(max(8, sums) * eps * max(s, u), 1e-31, max(multiple, sums) * typical error)

with sums = n / 4 * min(1, eps of float32 / eps) ulps of the sums over n positions, at most 1024. The typical error is
the larger of the largest observed error of x and s times the median of observed error / scale in its channel.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from .._format.compare import scale_of, without_fills
from .._format.names import Arrays, Case
from .._golden_cases.golden_cases import LARGE
from .._signature.signature import Signature
from .perturbed_runs import PRECISION_EPS, Perturbation, perturbed_runner
from .tie_errors import ObservedErrors

RUNS = 3  # perturbed runs on all cases
TIES = 10  # runs for outputs that are integers or booleans: rounding must flip a choice for a tie to be observed
TIE_ULPS = {"float32": 16, "float16": 4, "int8": 4}  # size of the perturbation in these runs
# of observed errors: few runs miss the largest; a coarse precision rounds by half an ulp, and is perturbed by one
MULTIPLE = {"float32": 32, "float16": 16, "int8": 16}
FLOOR = 8  # ulps of the scale of a number; functions are off by 1 to 2, most sums by 3
# ulps for each summand. If all are equal, as with a length of 1, each addition rounds in the same direction under every
# perturbation: a sum of n, one number after the other, is off by n / 8, two are n / 4 apart
SUM_ULPS = 1 / 4
LONGEST_SUM = 1024  # numbers: onnxruntime sums more of them in pieces
SUM_EPS = float(np.finfo(np.float32).eps)  # sums are in float32 in float16 and int8 files too
MIN_CHANNEL_SIZE = 8  # numbers, for a median
UNDERFLOW = 1e-31  # a smaller number may be 0 on another machine, or have lost digits


def with_rounding(signature: Signature, cases: Sequence[Case], precision: str) -> list[Case]:
    """Return golden cases with their rounding limits.

    Every limit is the difference between perturbed and unperturbed runs of one implementation, in one precision. The
    outputs of another implementation, or of the model in float64, widen no limit: a layer that computes otherwise there
    would excuse any file.

    Args:
        signature: The model; perturbed weights are restored.
        cases: Golden cases; limits that they have are ignored.
        precision: Precision of the ONNX file that is to be compared with them.
    """
    if not cases:
        return []
    rng = np.random.default_rng(0)
    tie_runs = TIES if _has_discrete_outputs(cases[0]) else 0
    runner = perturbed_runner(signature, cases, RUNS + tie_runs, rng)
    inputs = [case.inputs for case in cases]
    observed = [ObservedErrors(outputs) for outputs in runner.base_outputs]
    for _ in range(RUNS):
        for errors, outputs in zip(observed, runner.run(inputs, Perturbation(1, precision, rng)), strict=True):
            errors.record(outputs)
    large = Perturbation(TIE_ULPS[precision], precision, rng)
    saturated = _saturated(cases, precision)
    for _ in range(TIES if saturated else 0):
        for number, outputs in zip(saturated, runner.run([inputs[n] for n in saturated], large), strict=True):
            observed[number].record_switched_keys(outputs)
    dtypes = _float_dtypes(signature.model, cases[0].inputs)
    eps = max([PRECISION_EPS[precision], *(np.finfo(dtype).eps for dtype in dtypes)])
    limits = _rounding_limits(cases, observed, MULTIPLE[precision], eps)
    for _ in range(tie_runs):
        for errors, outputs, floats in zip(observed, runner.run(inputs, large), limits, strict=True):
            errors.record(outputs, floats)
    return _with_limits(cases, observed, limits)


def with_limits(cases: Sequence[Case], runs: Iterable[Sequence[Arrays]], multiple: int) -> list[Case]:
    """Return cases with the rounding limits that `runs` of a float32 graph show, with all roundings drawn anew.

    The limits are a multiple of the observed errors, as few runs miss the largest.
    """
    observed = [ObservedErrors(case.outputs) for case in cases]
    for run in runs:
        for errors, outputs in zip(observed, run, strict=True):
            errors.record(outputs)
    return _with_limits(cases, observed, _rounding_limits(cases, observed, multiple, SUM_EPS))


def _with_limits(cases: Sequence[Case], observed: Sequence[ObservedErrors], limits: Sequence[Arrays]) -> list[Case]:
    rows = zip(cases, observed, limits, strict=True)
    return [case._replace(rounding=errors.widened(of_case)) for case, errors, of_case in rows]


def _rounding_limits(
    cases: Sequence[Case], observed: Sequence[ObservedErrors], multiple: int, eps: float
) -> list[Arrays]:
    usual = {name: _usual_sizes([case.outputs[name] for case in cases]) for name in cases[0].outputs}
    return [
        {
            name: _limits(expected, errors.errors[name], multiple, usual[name], _sum_ulps(case), eps)
            for name, expected in case.outputs.items()
        }
        for case, errors in zip(cases, observed, strict=True)
    ]


def _saturated(cases: Sequence[Case], precision: str) -> list[int]:
    """Return the numbers of the cases whose scores are so large that a coarse precision decides which key is seen."""
    return [number for number, case in enumerate(cases) if case.name == LARGE] if PRECISION_EPS[precision] else []


def _sum_ulps(case: Case) -> float:
    """Return by how many ulps two correct sums over the positions of a case may differ.

    A position is an index of an axis of whole numbers or masks, and of floats if it is not the last, whose numbers have
    weights of their own each. The first axis has examples, and images are drawn each with other numbers.
    """
    arrays = [array for array in (*case.inputs.values(), *case.outputs.values()) if array.ndim < 4]
    shapes = [array.shape[1:-1] if array.dtype.kind == "f" else array.shape[1:] for array in arrays]
    return SUM_ULPS * min(max((size for shape in shapes for size in shape), default=0), LONGEST_SUM)


def _has_discrete_outputs(case: Case) -> bool:
    return any(array.dtype.kind != "f" for array in case.outputs.values())


def _float_dtypes(model: keras.Model, inputs: Arrays) -> list[np.dtype[Any]]:
    names = {str(variable.dtype) for variable in model.weights} | {array.dtype.name for array in inputs.values()}
    return [np.dtype(name) for name in names if name in ("float16", "float32", "float64")]


def _usual_sizes(outputs: Sequence[np.ndarray]) -> np.ndarray | float:
    """Return the usual size of an output, by channel if all cases have the same channels: the median of medians."""
    medians = [
        np.median(_sizes(array).reshape(-1, array.shape[-1] if array.ndim > 1 else 1), 0)
        for array in outputs
        if array.dtype.kind == "f" and array.size
    ]
    if not medians:
        return 0.0
    same = len({median.shape for median in medians}) == 1
    return np.median(medians, 0) if same else float(np.median([median.min() for median in medians]))


def _sizes(array: np.ndarray) -> np.ndarray:
    return without_fills(np.abs(np.nan_to_num(array.astype(np.float64), posinf=0, neginf=0)))


def typical_errors(errors: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the observed errors, at least the median relative error of the channel times the scale.

    By luck the error of a number may be 0 in each run. A channel with few numbers gets the median of all channels.
    """
    columns = errors.shape[-1] if errors.ndim > 1 else 1
    is_changed = (scale > 0) & (errors > 0)  # most outputs of a ReLU or a mask are zeros without errors
    shares = np.divide(errors, scale, out=np.full(errors.shape, np.nan), where=is_changed).reshape(-1, columns)
    pooled = shares if len(shares) >= MIN_CHANNEL_SIZE else shares.reshape(-1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a channel without errors
        usual = np.nan_to_num(np.nanmedian(pooled, 0, keepdims=True))
    typical: np.ndarray = np.maximum(errors, scale * np.broadcast_to(usual, shares.shape).reshape(errors.shape))
    return typical


def _limits(
    expected: np.ndarray,
    errors: np.ndarray,
    multiple: int,
    usual: np.ndarray | float,
    sum_ulps: float,
    eps: float,
) -> np.ndarray:
    """Return the rounding limits of floats, by the formula of this module; the observed errors of other dtypes.

    The floor counts the scale and the usual size of a channel: sigmoids end at 1e-8 in onnxruntime, an error that is
    as large near 0. An error of `sum_ulps` in sums on the way is scaled by the observed effect of one ulp.
    """
    if expected.dtype.kind != "f" or expected.size == 0:
        return errors
    wide = expected.astype(np.float64)
    largest_eps = max(eps, float(np.finfo(expected.dtype).eps))
    scale = scale_of(wide)
    ulps_of_sums = sum_ulps * min(1.0, SUM_EPS / largest_eps)
    floor = max(FLOOR, ulps_of_sums) * largest_eps * np.maximum(scale, usual)
    observed = max(multiple, ulps_of_sums) * typical_errors(errors, scale)
    limits: np.ndarray = np.maximum(np.maximum(floor, UNDERFLOW), observed)
    return limits.reshape(expected.shape)
