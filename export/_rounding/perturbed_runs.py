"""Run a model with perturbed weights and activations, eagerly or as one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np

from .._format.names import Arrays, Case
from .._golden_cases.input_sampler import is_same_model
from .._private_api.keras_internals import is_group_number, through_saturating
from .._signature.keras_messages import quiet_keras
from .._signature.signature import Signature

# units of 1, near 0: in onnxruntime sigmoids are off by up to 1.4, also where they should be 1e-8; a log-softmax of a
# sure choice is the logarithm of a sum that is rounded near 1
SATURATING = 0.25
WORTH_A_GRAPH = 10_000  # operations of all runs together: one by one they take longer than a graph takes to be traced
MOST_OF_GRAPH = 2**24  # numbers in weights: beside what more of them take, it is little what operations do

Outputs = Callable[[Arrays], Arrays]
Move = Callable[[np.ndarray, int], np.ndarray]  # of an array, and the axis along which int8 has one scale
# gives how to run the model, for units by which what saturates is moved, and how its weights are
Runs = Callable[[int, Move], AbstractContextManager[Outputs]]
Way = Callable[[keras.Model, Move], AbstractContextManager[None]]


def moved_runs(
    signature: Signature, cases: Sequence[Case], times: int, rng: np.random.Generator
) -> tuple[Runs, list[Arrays]]:
    """Return how to run a model with moved weights, which stay what they are, and its outputs without that.

    Args:
        signature: The model; it runs as one graph of TensorFlow where that is faster and gives the same.
        cases: What it will run on, with its outputs.
        times: How often.
        rng: Draws how far what saturates is moved.
    """
    way = _way_to_move(signature, cases[0])
    is_few = keras.backend.backend() == "tensorflow" and signature.weights_size <= MOST_OF_GRAPH
    if way is _scoped_weights and is_few:
        from .._private_api.tensorflow_internals import operations_of

        if len(cases) * times * operations_of(lambda: signature.run(cases[0].inputs)) >= WORTH_A_GRAPH:
            return _as_graph(signature, cases, rng) or _one_by_one(signature, cases, way, rng)
    return _one_by_one(signature, cases, way, rng)


def _one_by_one(
    signature: Signature, cases: Sequence[Case], moved_weights: Way, rng: np.random.Generator
) -> tuple[Runs, list[Arrays]]:
    """Return how a model runs with moved weights, an operation after the other, and its outputs without that."""

    @contextmanager
    def runs(units: int, move: Move) -> Iterator[Outputs]:
        change = partial(_moved_saturating, units=units, shares=partial(_shares, rng=rng))
        with moved_weights(signature.model, move), through_saturating(change):
            yield signature.run

    return runs, [case.outputs for case in cases]


def _as_graph(
    signature: Signature, cases: Sequence[Case], rng: np.random.Generator
) -> tuple[Runs, list[Arrays]] | None:
    """Return how a model runs as a graph of TensorFlow, or nothing where none gives the outputs of the cases.

    Its outputs are those of the graph: what it does otherwise than the model is no rounding.
    """
    from .._signature.tensorflow_graph import graph_of_weights, has_calls, shares_in_graph

    weights = list(_weights(signature.model))

    def change(units: Any) -> AbstractContextManager[None]:
        return through_saturating(partial(_moved_saturating, units=units, shares=partial(shares_in_graph, rng=rng)))

    @contextmanager
    def runs(units: int, move: Move) -> Iterator[Outputs]:
        values = [keras.ops.convert_to_tensor(array, variable.dtype) for variable, array in _moved(weights, move)]
        yield lambda inputs: moved(inputs, values, units)

    try:
        with quiet_keras():
            if has_calls(signature):
                return None
            moved = graph_of_weights(signature, [variable for variable, _ in weights], change)
        with runs(0, lambda array, _: array) as run:
            base = [run(case.inputs) for case in cases]
    except Exception:  # noqa: BLE001 - whatever the code of the user's own layers raises on symbolic tensors
        return None
    is_same = all(is_same_model(found, case.outputs) for found, case in zip(base, cases, strict=True))
    return (runs, base) if is_same else None


def _way_to_move(signature: Signature, case: Case) -> Way:
    """Return how to let a model compute with other weights: without touching them, if it then sees the others.

    What a layer has under `tf.function` reads the variables themselves.
    """
    if keras.backend.backend() != "tensorflow" or not signature.model.weights:
        return _scoped_weights
    factors = np.array([0.5, 2])
    with _scoped_weights(signature.model, lambda array, _: array * np.resize(factors.astype(array.dtype), array.shape)):
        found = signature.run(case.inputs)
    same = all(
        np.array_equal(found[name], array, equal_nan=array.dtype.kind == "f") for name, array in case.outputs.items()
    )
    return _assigned_weights if same else _scoped_weights


@contextmanager
def _scoped_weights(model: keras.Model, move: Move) -> Iterator[None]:
    """Let a model compute, within the context, with weights that are moved; its variables stay as they are."""
    values = [
        (variable, keras.ops.convert_to_tensor(array, variable.dtype))
        for variable, array in _moved(_weights(model), move)
    ]
    with keras.StatelessScope(state_mapping=values):
        yield


@contextmanager
def _assigned_weights(model: keras.Model, move: Move) -> Iterator[None]:
    """Do the same by moving the variables, and back."""
    before = [(variable, array.copy()) for variable, array in _weights(model)]
    try:
        for variable, array in _moved(before, move):
            variable.assign(array)
        yield
    finally:
        for variable, array in before:
            variable.assign(array)


def _moved(weights: Iterable[tuple[Any, np.ndarray]], move: Move) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield weights moved: in int8 the rows of an embedding table have a scale each, and the columns of a matrix."""
    for variable, array in weights:
        yield variable, move(array, -1 if variable.name == "embeddings" else -2)


def _weights(model: keras.Model) -> Iterator[tuple[Any, np.ndarray]]:
    for variable in model.weights:
        if is_group_number(variable):
            continue
        array = np.asarray(keras.ops.convert_to_numpy(variable.value))
        if array.dtype.kind == "f":
            yield variable, array


def _moved_saturating(found: Any, *, units: Any, shares: Callable[[Any], Any]) -> Any:
    """Return what a sigmoid, or log-softmax, gave moved by a share of a unit of 1: so far off it may be near 0.

    Some of it is the same for all, as what onnxruntime does to gates that are closed, and adds up over many. Some is
    each number's own: what moves all keys alike, a softmax over them does not see.
    """
    eps = np.finfo(np.float64 if keras.backend.standardize_dtype(found.dtype) == "float64" else np.float32).eps
    size = keras.ops.cast(shares(found) * SATURATING * units * eps, found.dtype)
    # a quarter of a unit would not move 1, and recurrent gates are near it; minus infinity stays
    return found + size * (1 + 2 * keras.ops.minimum(keras.ops.abs(found), 1))


def _shares(found: Any, rng: np.random.Generator) -> np.ndarray:
    shares: np.ndarray = rng.choice([-1.0, 1.0]) + rng.uniform(-2, 2, () if None in found.shape else tuple(found.shape))
    return shares
