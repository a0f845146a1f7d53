"""What a float32 model would give without its rounding: its outputs in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from .._standalone.verify import Arrays, Case
from .float32_clone import clone_with_policies
from .signature import model_signature
from .trial_runs import outputs_of

MOST = 2**27  # numbers in weights, a gigabyte in float64


def outputs_in_float64(
    model: keras.Model, samples: Mapping[str, Any] | None, cases: Sequence[Case]
) -> list[Arrays] | None:
    """Return the outputs that a clone of the model in float64 gives for the cases; `None` if there is none.

    There is none of a model with many weights, of one that cannot be made again, or whose layers insist on float32, nor
    where the backend has no float64.
    """
    if keras.backend.backend() == "jax" or sum(math.prod(variable.shape) for variable in model.weights) > MOST:
        return None
    try:
        clone = clone_with_policies(model, samples, "float64", ("float32",), inputs_too=True)
        outputs = outputs_of(model_signature(clone, samples))
        found = [outputs(case.inputs) for case in cases]
    except Exception:  # noqa: BLE001 - from_config, build and call are the user's own code, made for float32
        return None
    names = [*cases[0].outputs]
    return [dict(zip(names, each.values(), strict=True)) for each in found]
