"""Run a model with perturbed weights and activations, eagerly or as one graph."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np

from .._array_comparison import alike, outputs_match
from .._format.names import Arrays, Case
from .._private_api.keras_internals import is_group_number, through_saturating
from .._signature.keras_messages import quiet_keras
from .._signature.signature import Signature

# ulps of 1, near 0: in onnxruntime sigmoids are off by up to 1.4, also where they should be 1e-8; a log-softmax of a
# sure choice is the logarithm of a sum that is rounded near 1
SATURATING = 0.25
WORTH_A_GRAPH = 10_000  # operations of all runs together: one by one they take longer than tracing a graph
MAX_GRAPH_WEIGHTS = 2**24  # numbers: converting more of them takes longer than running the operations
CHUNK_SIZE = 2**20  # numbers perturbed at a time: gigabytes of weights would need gigabytes of factors
PRECISION_EPS = {"float32": 0.0, "float16": float(np.finfo(np.float16).eps), "int8": 1 / 254}  # if above the dtype's

GraphOfWeights = Callable[[Arrays, Sequence[Any], float], Arrays]


@dataclass(frozen=True)
class Perturbation:
    """Random perturbation of floats by a number of ulps of a precision.

    A number x becomes x (1 + ulps eps) or x (1 - ulps eps), each at even odds. A matrix in int8 has one scale along an
    axis: there x becomes x + ulps m / 254 or x - ulps m / 254, with m the largest magnitude along that axis.
    """

    ulps: int
    precision: str
    rng: np.random.Generator

    def of_inputs(self, inputs: Arrays) -> Arrays:
        """Return perturbed inputs; strings and whole numbers are ids or a mask, and stay exact."""
        return {
            name: array if array.dtype.kind != "f" or np.array_equal(array, np.rint(array)) else self.of(array, -1)
            for name, array in inputs.items()
        }

    def of_weights(self, weights: Iterable[tuple[Any, np.ndarray]]) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield variables with perturbed values; in int8 embeddings have a scale per row, matrices per column."""
        for variable, array in weights:
            yield variable, self.of(array, -1 if variable.name == "embeddings" else -2)

    def of(self, array: np.ndarray, axis: int) -> np.ndarray:
        """Return a perturbed array; in int8, arrays of one axis, or of more than three, stay in float32."""
        if array.dtype.kind != "f" or array.size == 0:
            return array
        with np.errstate(over="ignore", invalid="ignore"):
            is_int8 = self.precision == "int8" and array.ndim in (2, 3)
            return self._of_int8(array, axis) if is_int8 else self._of_float(array)

    def _of_int8(self, array: np.ndarray, axis: int) -> np.ndarray:
        kind, perturbed = array.dtype.type, array.copy()
        largest = np.maximum(array.max(axis, keepdims=True), -array.min(axis, keepdims=True))
        steps = np.broadcast_to((self.ulps * PRECISION_EPS["int8"] * largest).astype(kind), array.shape)
        rows = max(1, CHUNK_SIZE * len(array) // array.size)
        for start in range(0, len(array), rows):
            part = perturbed[start : start + rows]
            part += steps[start : start + rows] * (self.rng.integers(0, 2, part.shape, np.int8) * kind(2) - kind(1))
        return perturbed

    def _of_float(self, array: np.ndarray) -> np.ndarray:
        perturbed = array.copy()
        coarse = PRECISION_EPS["float16"] if self.precision == "float16" else 0.0
        share = self.ulps * max(float(np.finfo(array.dtype).eps), coarse)
        factors = np.array([1 - share, 1 + share], array.dtype)
        flat = perturbed.reshape(-1)
        for start in range(0, flat.size, CHUNK_SIZE):
            part = flat[start : start + CHUNK_SIZE]
            part *= factors[self.rng.integers(0, 2, part.size, np.int8)]
        return perturbed


PatchWeights = Callable[[keras.Model, Perturbation], AbstractContextManager[None]]


@dataclass(frozen=True)
class EagerRunner:
    """Runs a model one operation after the other, with the outputs of the golden cases as unperturbed outputs."""

    signature: Signature
    base_outputs: list[Arrays]
    patch_weights: PatchWeights
    rng: np.random.Generator

    def run(self, inputs: Iterable[Arrays], perturbation: Perturbation) -> list[Arrays]:
        """Return the outputs for several inputs, which are perturbed, with weights perturbed once for all of them."""
        change = partial(_with_perturbed_saturation, ulps=perturbation.ulps, shares=partial(_shares, rng=self.rng))
        with self.patch_weights(self.signature.model, perturbation), through_saturating(change):
            return [self.signature.run(perturbation.of_inputs(arrays)) for arrays in inputs]


@dataclass(frozen=True)
class GraphRunner:
    """Runs a model as one graph of TensorFlow.

    The unperturbed outputs are those of the graph: its systematic difference from the model is no rounding.
    """

    graph: GraphOfWeights
    base_outputs: list[Arrays]
    weights: list[tuple[Any, np.ndarray]]

    def run(self, inputs: Iterable[Arrays], perturbation: Perturbation) -> list[Arrays]:
        """Return the outputs for several inputs, which are perturbed, with weights perturbed once for all of them."""
        values = [tensor for _, tensor in _state_mapping(perturbation.of_weights(self.weights))]
        return [self.graph(perturbation.of_inputs(arrays), values, perturbation.ulps) for arrays in inputs]


def perturbed_runner(
    signature: Signature, cases: Sequence[Case], times: int, rng: np.random.Generator
) -> EagerRunner | GraphRunner:
    """Return a runner of a model with perturbed inputs and weights; the model's variables keep their values.

    The model runs as one graph of TensorFlow if that is faster for so many `times`, and gives the same outputs.
    """
    patch_weights = _weight_patch(signature, cases[0])
    is_graph = patch_weights is _scoped_weights and _is_worth_a_graph(signature, cases, times)
    runner = _graph_runner(signature, cases, rng) if is_graph else None
    return runner or EagerRunner(signature, [case.outputs for case in cases], patch_weights, rng)


def _is_worth_a_graph(signature: Signature, cases: Sequence[Case], times: int) -> bool:
    if keras.backend.backend() != "tensorflow" or signature.weights_size > MAX_GRAPH_WEIGHTS:
        return False
    from .._private_api.tensorflow_internals import operations_of

    return len(cases) * times * operations_of(lambda: signature.run(cases[0].inputs)) >= WORTH_A_GRAPH


def _graph_runner(signature: Signature, cases: Sequence[Case], rng: np.random.Generator) -> GraphRunner | None:
    """Return a runner of the model as a graph of TensorFlow, or `None` if the graph gives other outputs."""
    from .._signature.tensorflow_graph import graph_of_weights, shares_in_graph

    weights = list(_weights(signature.model))

    def change(ulps: Any) -> AbstractContextManager[None]:
        shares = partial(shares_in_graph, rng=rng)
        return through_saturating(partial(_with_perturbed_saturation, ulps=ulps, shares=shares))

    try:
        with quiet_keras():
            graph = graph_of_weights(signature, [variable for variable, _ in weights], change)
        if graph is None:
            return None
        values = [tensor for _, tensor in _state_mapping(weights)]
        base_outputs = [graph(case.inputs, values, 0) for case in cases]
    except Exception:  # noqa: BLE001 - whatever the code of the user's own layers raises on symbolic tensors
        return None
    is_same = all(outputs_match(outputs, case.outputs) for outputs, case in zip(base_outputs, cases, strict=True))
    return GraphRunner(graph, base_outputs, weights) if is_same else None


def _weight_patch(signature: Signature, case: Case) -> PatchWeights:
    """Return `_scoped_weights` if the model then computes with other weights, else `_assigned_weights`.

    A layer under `tf.function` reads the variables themselves.
    """
    if keras.backend.backend() != "tensorflow" or not signature.model.weights:
        return _scoped_weights
    factors = np.array([0.5, 2])
    weights = _weights(signature.model)
    scaled = ((variable, array * np.resize(factors.astype(array.dtype), array.shape)) for variable, array in weights)
    with keras.StatelessScope(state_mapping=_state_mapping(scaled)):
        outputs = signature.run(case.inputs)
    is_unchanged = all(alike(outputs[name], array) for name, array in case.outputs.items())
    return _assigned_weights if is_unchanged else _scoped_weights


@contextmanager
def _scoped_weights(model: keras.Model, perturbation: Perturbation) -> Iterator[None]:
    """Let a model compute with perturbed weights within the context; its variables keep their values."""
    with keras.StatelessScope(state_mapping=_state_mapping(perturbation.of_weights(_weights(model)))):
        yield


@contextmanager
def _assigned_weights(model: keras.Model, perturbation: Perturbation) -> Iterator[None]:
    """Assign perturbed values to the variables of a model, and restore the variables at the end of the context."""
    before = [(variable, array.copy()) for variable, array in _weights(model)]
    try:
        for variable, array in perturbation.of_weights(before):
            variable.assign(array)
        yield
    finally:
        for variable, array in before:
            variable.assign(array)


def _state_mapping(weights: Iterable[tuple[Any, np.ndarray]]) -> list[tuple[Any, Any]]:
    return [(variable, keras.ops.convert_to_tensor(array, variable.dtype)) for variable, array in weights]


def _weights(model: keras.Model) -> Iterator[tuple[Any, np.ndarray]]:
    for variable in model.weights:
        if is_group_number(variable):
            continue
        array = np.asarray(keras.ops.convert_to_numpy(variable.value))
        if array.dtype.kind == "f":
            yield variable, array


def _with_perturbed_saturation(output: Any, *, ulps: Any, shares: Callable[[Any], Any]) -> Any:
    """Return the output of a sigmoid, or log-softmax, perturbed by a fraction of the ulp of 1, the error near 0 too.

    One part of the perturbation is common to all numbers, as the error of onnxruntime for closed gates, and adds up
    over many. The other part is each number's own: a softmax over keys cancels an error that all keys have in common.
    """
    eps = np.finfo(np.float64 if keras.backend.standardize_dtype(output.dtype) == "float64" else np.float32).eps
    size = keras.ops.cast(shares(output) * SATURATING * ulps * eps, output.dtype)
    # a quarter of an ulp would not change 1, and recurrent gates are near it; minus infinity stays
    return output + size * (1 + 2 * keras.ops.minimum(keras.ops.abs(output), 1))


def _shares(output: Any, rng: np.random.Generator) -> np.ndarray:
    shape = () if None in output.shape else tuple(output.shape)
    shares: np.ndarray = rng.choice([-1.0, 1.0]) + rng.uniform(-2, 2, shape)
    return shares
