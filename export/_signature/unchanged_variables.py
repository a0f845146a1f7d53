"""Keep the variables of a user's model as they are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from .._errors import UnsupportedModelError


@contextmanager
def unchanged_variables(model: keras.Model) -> Iterator[None]:
    """Restore the variables of a model at the end of the context, states of seed generators included.

    The copies take no memory on TensorFlow and JAX as long as nothing is assigned: they share the buffers.

    Raises:
        UnsupportedModelError: A weight had changed, so that what was done in the context was done with other weights.
    """
    before = [(variable, keras.ops.copy(variable.value)) for variable in model.variables]
    changed: list[str] = []
    try:
        yield
    finally:
        weights = {id(weight) for weight in model.weights}
        for variable, value in before:
            if not _is_equal(variable, value):
                variable.assign(value)
                changed += [variable.path] if id(variable) in weights else []
    if changed:
        raise UnsupportedModelError(
            f"Weight `{changed[0]}` of `{model.name}` changes when the model is called with `training=False`. All "
            "weights have their values again. Let the layer change the weight only `if training:`."
        )


def _is_equal(variable: Any, value: Any) -> bool:
    if bool(keras.ops.all(keras.ops.equal(variable.value, value))):  # without copies
        return True
    now, before = (keras.ops.convert_to_numpy(tensor) for tensor in (variable.value, value))
    return bool(now.tobytes() == before.tobytes())  # NaN equals itself
