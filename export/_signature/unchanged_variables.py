"""Restoration of the variables of a user's model after an export."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from .._errors import UnsupportedModelError


@contextmanager
def restore_variables(model: keras.Model) -> Iterator[None]:
    """Restore the variables of a model at the end of the context, including states of seed generators.

    Raises:
        UnsupportedModelError: If a weight has changed, so that the work in the context used different weights.
    """
    # On TensorFlow and JAX the copies share the buffers of the variables until a variable is assigned.
    saved_values = [(variable, keras.ops.copy(variable.value)) for variable in model.variables]
    paths: list[str] = []
    try:
        yield
    finally:
        weights = {id(weight) for weight in model.weights}
        for variable, value in saved_values:
            if not _is_equal(variable, value):
                variable.assign(value)
                paths += [variable.path] if id(variable) in weights else []
    if paths:
        raise UnsupportedModelError(
            f"Weight `{paths[0]}` of `{model.name}` changes when the model is called with `training=False`. All "
            "weights have been restored. Change the weight in the layer only `if training:`."
        )


def _is_equal(variable: Any, value: Any) -> bool:
    if bool(keras.ops.all(keras.ops.equal(variable.value, value))):  # without copies
        return True
    current, expected = (keras.ops.convert_to_numpy(tensor) for tensor in (variable.value, value))
    return bool(current.tobytes() == expected.tobytes())  # NaN equals itself
