"""Runs of a model with perturbed inputs, weights and saturating activations, eager or as a TensorFlow graph.

A perturbation by k ulps replaces a float x by x (1 + k eps) or x (1 - k eps), each with probability 1/2. A matrix in
int8 has one scale along an axis: there x becomes x + k m / 254 or x - k m / 254, where m is the largest magnitude along
that axis. Symmetric int8 has the scale m / 127, so m / 254 is half a quantization step, the largest error of rounding.

A sigmoid or log-softmax y is perturbed by

    u (1 + 2 min(|y|, 1)) SATURATION_ULPS k eps,    u = +-1 + uniform(-2, 2)

so by up to 0.75 ulps of 1 near y = 0 and three times as much near 1, where 0.25 ulps could not change a float. The sign
+-1 is common to the tensor, since the error of onnxruntime for closed gates has one sign and accumulates over elements.
The uniform part is drawn for each element: a softmax over keys cancels an error that all keys share.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np

from .._array_comparison import arrays_match, outputs_match
from .._format.names import Arrays, Case
from .._private_api.keras_internals import intercept_saturating, is_group_index
from .._signature.keras_messages import silence_keras
from .._signature.signature import Signature

# In onnxruntime sigmoids are off by up to 1.4 ulps of 1, also if they should be 1e-8. The log-softmax of a certain
# choice is the logarithm of a sum that is rounded near 1.
SATURATION_ULPS = 0.25
# With fewer operations in all runs, tracing a graph takes longer; with more weights, converting them in each run.
MIN_GRAPH_OPERATIONS, MAX_GRAPH_WEIGHTS = 10_000, 2**24
# Without chunks, gigabytes of weights need gigabytes of random factors.
CHUNK_ELEMENTS = 2**20
PRECISION_EPS = {"float32": 0.0, "float16": float(np.finfo(np.float16).eps), "int8": 1 / 254}

GraphOfWeights = Callable[[Arrays, Sequence[Any], float], Arrays]


@dataclass(frozen=True)
class Perturbation:
    """Random perturbation of floats by a number of ulps of a precision, by the formula of this module."""

    ulps: int
    precision: str
    rng: np.random.Generator

    def perturb_inputs(self, inputs: Arrays) -> Arrays:
        """Return inputs with perturbed floats; arrays of integers, also in a float dtype, are ids or masks and stay."""
        return {
            name: array if array.dtype.kind != "f" or np.array_equal(array, np.rint(array)) else self.perturb(array, -1)
            for name, array in inputs.items()
        }

    def perturb_weights(self, weights: Iterable[tuple[Any, np.ndarray]]) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield variables with perturbed values. In int8 an embedding has a scale per row, a matrix one per column."""
        for variable, array in weights:
            yield variable, self.perturb(array, -1 if variable.name == "embeddings" else -2)

    def perturb(self, array: np.ndarray, axis: int) -> np.ndarray:
        """Return a perturbed copy of an array. An int8 file stores arrays of rank 1 and above 3 as float32."""
        if array.dtype.kind != "f" or array.size == 0:
            return array
        with np.errstate(over="ignore", invalid="ignore"):
            is_int8 = self.precision == "int8" and array.ndim in (2, 3)
            return self._perturb_int8(array, axis) if is_int8 else self._perturb_float(array)

    def _perturb_int8(self, array: np.ndarray, axis: int) -> np.ndarray:
        dtype, result = array.dtype.type, array.copy()
        largest = np.maximum(array.max(axis, keepdims=True), -array.min(axis, keepdims=True))
        sizes = np.broadcast_to((self.ulps * PRECISION_EPS["int8"] * largest).astype(dtype), array.shape)
        rows = max(1, CHUNK_ELEMENTS * len(array) // array.size)
        for start in range(0, len(array), rows):
            chunk = result[start : start + rows]
            chunk += sizes[start : start + rows] * (self.rng.integers(0, 2, chunk.shape, np.int8) * dtype(2) - dtype(1))
        return result

    def _perturb_float(self, array: np.ndarray) -> np.ndarray:
        result = array.copy()
        precision_eps = PRECISION_EPS["float16"] if self.precision == "float16" else 0.0
        relative = self.ulps * max(float(np.finfo(array.dtype).eps), precision_eps)
        factors = np.array([1 - relative, 1 + relative], array.dtype)
        flat = result.reshape(-1)
        for start in range(0, flat.size, CHUNK_ELEMENTS):
            chunk = flat[start : start + CHUNK_ELEMENTS]
            chunk *= factors[self.rng.integers(0, 2, chunk.size, np.int8)]
        return result


PatchWeights = Callable[[keras.Model, Perturbation], AbstractContextManager[None]]


@dataclass(frozen=True)
class EagerRunner:
    """Eager runs of a model; the unperturbed outputs are those of the golden cases."""

    signature: Signature
    base_outputs: list[Arrays]
    patch_weights: PatchWeights
    rng: np.random.Generator

    def run(self, inputs: Iterable[Arrays], perturbation: Perturbation) -> list[Arrays]:
        """Return the outputs for each of the perturbed inputs, all with the same perturbed weights."""
        change = partial(_perturb_saturation, ulps=perturbation.ulps, draw_shares=partial(_draw_shares, rng=self.rng))
        with self.patch_weights(self.signature.model, perturbation), intercept_saturating(change):
            return [self.signature.run(perturbation.perturb_inputs(arrays)) for arrays in inputs]


@dataclass(frozen=True)
class GraphRunner:
    """Runs of a model as a TensorFlow graph; `base_outputs` are those of the graph, which may differ from the model."""

    graph: GraphOfWeights
    base_outputs: list[Arrays]
    weights: list[tuple[Any, np.ndarray]]

    def run(self, inputs: Iterable[Arrays], perturbation: Perturbation) -> list[Arrays]:
        """Return the outputs for each of the perturbed inputs, all with the same perturbed weights."""
        values = [tensor for _, tensor in _build_state_mapping(perturbation.perturb_weights(self.weights))]
        return [self.graph(perturbation.perturb_inputs(arrays), values, perturbation.ulps) for arrays in inputs]


def build_runner(
    signature: Signature, cases: Sequence[Case], num_runs: int, rng: np.random.Generator
) -> EagerRunner | GraphRunner:
    """Build the faster runner for `num_runs` runs on all cases; a graph must return the golden outputs."""
    patch_weights = _choose_weight_patch(signature, cases[0])
    uses_graph = patch_weights is _scope_perturbed_weights and _is_graph_faster(signature, cases, num_runs)
    runner = _build_graph_runner(signature, cases, rng) if uses_graph else None
    return runner or EagerRunner(signature, [case.outputs for case in cases], patch_weights, rng)


def _is_graph_faster(signature: Signature, cases: Sequence[Case], num_runs: int) -> bool:
    if keras.backend.backend() != "tensorflow" or signature.num_weights > MAX_GRAPH_WEIGHTS:
        return False
    from .._private_api.tensorflow_internals import count_operations

    return len(cases) * num_runs * count_operations(lambda: signature.run(cases[0].inputs)) >= MIN_GRAPH_OPERATIONS


def _build_graph_runner(signature: Signature, cases: Sequence[Case], rng: np.random.Generator) -> GraphRunner | None:
    """Return a runner of the model as a graph, or `None` if tracing fails or the graph returns different outputs."""
    from .._signature.tensorflow_graph import draw_shares_in_graph, trace_weight_graph

    weights = list(_iterate_float_weights(signature.model))

    def patch_saturation(ulps: Any) -> AbstractContextManager[None]:
        draw_shares = partial(draw_shares_in_graph, rng=rng)
        return intercept_saturating(partial(_perturb_saturation, ulps=ulps, draw_shares=draw_shares))

    try:
        with silence_keras():
            graph = trace_weight_graph(signature, [variable for variable, _ in weights], patch_saturation)
        if graph is None:
            return None
        values = [tensor for _, tensor in _build_state_mapping(weights)]
        base_outputs = [graph(case.inputs, values, 0) for case in cases]
    except Exception:  # noqa: BLE001 - layers of the user may raise anything on symbolic tensors
        return None
    is_same = all(outputs_match(outputs, case.outputs) for outputs, case in zip(base_outputs, cases, strict=True))
    return GraphRunner(graph, base_outputs, weights) if is_same else None


def _choose_weight_patch(signature: Signature, case: Case) -> PatchWeights:
    """Return `_scope_perturbed_weights` if a scope changes the outputs, else `_assign_perturbed_weights`."""
    # A layer under `tf.function` reads the variables themselves, which a `StatelessScope` does not replace. To detect
    # such a layer, every other weight is halved and the rest doubled.
    if keras.backend.backend() != "tensorflow" or not signature.model.weights:
        return _scope_perturbed_weights
    factors = np.array([0.5, 2])
    weights = _iterate_float_weights(signature.model)
    pairs = ((variable, array * np.resize(factors.astype(array.dtype), array.shape)) for variable, array in weights)
    with keras.StatelessScope(state_mapping=_build_state_mapping(pairs)):
        outputs = signature.run(case.inputs)
    is_unchanged = all(arrays_match(outputs[name], array) for name, array in case.outputs.items())
    return _assign_perturbed_weights if is_unchanged else _scope_perturbed_weights


@contextmanager
def _scope_perturbed_weights(model: keras.Model, perturbation: Perturbation) -> Iterator[None]:
    """Replace the weights of a model by perturbed values within the context, without assigning its variables."""
    weights = perturbation.perturb_weights(_iterate_float_weights(model))
    with keras.StatelessScope(state_mapping=_build_state_mapping(weights)):
        yield


@contextmanager
def _assign_perturbed_weights(model: keras.Model, perturbation: Perturbation) -> Iterator[None]:
    """Assign perturbed values to the variables of a model, and restore them at the end of the context."""
    saved_weights = [(variable, array.copy()) for variable, array in _iterate_float_weights(model)]
    try:
        for variable, array in perturbation.perturb_weights(saved_weights):
            variable.assign(array)
        yield
    finally:
        for variable, array in saved_weights:
            variable.assign(array)


def _build_state_mapping(weights: Iterable[tuple[Any, np.ndarray]]) -> list[tuple[Any, Any]]:
    return [(variable, keras.ops.convert_to_tensor(array, variable.dtype)) for variable, array in weights]


def _iterate_float_weights(model: keras.Model) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the float weights of a model with their values, without weights that are integers in a float dtype."""
    for variable in model.weights:
        if is_group_index(variable):
            continue
        array = np.asarray(keras.ops.convert_to_numpy(variable.value))
        if array.dtype.kind == "f":
            yield variable, array


def _perturb_saturation(output: Any, *, ulps: Any, draw_shares: Callable[[Any], Any]) -> Any:
    """Return the perturbed output of a sigmoid or log-softmax, by the formula of this module."""
    eps = np.finfo(np.float64 if keras.backend.standardize_dtype(output.dtype) == "float64" else np.float32).eps
    size = keras.ops.cast(draw_shares(output) * SATURATION_ULPS * ulps * eps, output.dtype)
    # The factor 3 near 1 changes open recurrent gates too. It is limited, so that minus infinity does not become NaN.
    return output + size * (1 + 2 * keras.ops.minimum(keras.ops.abs(output), 1))


def _draw_shares(output: Any, rng: np.random.Generator) -> np.ndarray:
    """Draw u of the formula of this module: an array of the shape of `output`, or () if the shape is unknown."""
    shape = () if None in output.shape else tuple(output.shape)
    shares: np.ndarray = rng.choice([-1.0, 1.0]) + rng.uniform(-2, 2, shape)
    return shares
