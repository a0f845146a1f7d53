"""Refuse models that change in inference, or give other outputs when called again."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from .._array_comparison import alike
from .._errors import UnsupportedModelError
from .._format.names import Arrays
from .._private_api.keras_internals import KeptUpdates, layers_of, numbers_of
from .._signature.signature import Signature

RUNS_OF_RANDOM = 30  # of a layer that drops one example in ten, all but 1 in 20 models show it


def refuse_unsteady(signature: Signature, inputs: Arrays) -> None:
    """Run a model again on the same inputs; more often if it draws random numbers, of which few may change an output.

    Raises:
        UnsupportedModelError: A layer changes a weight or draws random numbers without `training`, or counts its calls.
    """
    with KeptUpdates() as scope:
        first = signature.run(inputs)
        assigned = [v for v in signature.model.variables if scope.get_current_value(v) is not None]
        weights = {id(weight) for weight in signature.model.weights}
        if stateful := [variable for variable in assigned if id(variable) in weights]:
            raise UnsupportedModelError(
                f"Layer `{_holder_of(signature, stateful[0])}` changes a variable, `{stateful[0].name}`, when the "
                "model is called with `training=False`; a file would freeze the value it has now. Let the layer change "
                "the variable only `if training:`, do not call it with `training=True` in the model, or pass the state "
                "as an input and an output."
            )
        random = [variable for variable in assigned if _is_changed(variable, scope)]
        for _ in range(RUNS_OF_RANDOM if random else 1):
            again = signature.run(inputs)
            if not all(_same_again(first[name], again[name]) for name in first):
                raise UnsupportedModelError(_unsteady(signature, inputs, random))


def _holder_of(signature: Signature, variable: Any) -> str:
    """Return the name of the innermost layer that has a variable."""
    holders = [layer for layer in signature.layers if any(v is variable for v in layer.variables)]
    return str(min(holders, key=lambda layer: len(layers_of(layer))).name)


def _unsteady(signature: Signature, inputs: Arrays, random: list[Any]) -> str:
    if random:
        return (
            f"Layer `{_holder_of(signature, random[0])}` draws random numbers when it is called with `training=False`, "
            "and its output changes with them, which a file cannot do. Let it draw only `if training:`, and return "
            "the mean otherwise."
        )
    return (
        f"{_first_unsteady_layer(signature, inputs)} gives other outputs when it is called again on the same inputs: "
        "it draws random numbers or keeps state in Python, which a file cannot do."
    )


def _first_unsteady_layer(signature: Signature, inputs: Arrays) -> str:
    if not signature.is_functional:
        return "The model"
    with KeptUpdates():
        first = signature.layer_outputs(inputs)
        for _ in range(RUNS_OF_RANDOM):
            for (name, one), (_, other) in zip(first, signature.layer_outputs(inputs), strict=True):
                if not _same_again(one, other):
                    return f"Layer `{name}`"
    return "A layer of the model"


def _is_changed(variable: Any, scope: keras.StatelessScope) -> bool:
    """Return True if a run within a scope assigned another value to a variable than the variable has outside."""
    assigned = numbers_of(scope.get_current_value(variable))  # `None` if a `tf.function` was traced, for instance
    with keras.StatelessScope():
        before = keras.ops.convert_to_numpy(variable.value)
    return assigned is None or not np.array_equal(before, assigned)


def _same_again(first: np.ndarray, second: np.ndarray) -> bool:
    """Return True if two runs gave the same, except for the order in which threads added up."""
    return alike(first, second, rtol=1e-3, atol=1e-5)
