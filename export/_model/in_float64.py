"""What a float32 model would give without its rounding: its outputs in float64."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence

import keras

from .._standalone.verify import Arrays, Case
from .float32_clone import clone_with_policies
from .signature import Signature
from .trial_runs import is_same_model

MOST = 2**24  # numbers in weights: two clones of more would cost more memory than all else


def outputs_in_float64(signature: Signature, cases: Sequence[Case]) -> list[Arrays] | None:
    """Return the outputs that a clone of the model in float64 gives for the cases; `None` if there is none.

    There is none of a model with many weights, of one that cannot be made again, or not the same, or whose layers
    insist on float32, nor where the backend has no float64.
    """
    if keras.backend.backend() == "jax" or signature.weights_size > MOST:
        return None
    with warnings.catch_warnings(), _silent_tensorflow():
        warnings.simplefilter("ignore")  # whatever there is to warn of has been said of the model itself
        return _tried(signature, cases)


@contextlib.contextmanager
def _silent_tensorflow() -> Iterator[None]:
    """Let TensorFlow log nothing: it says at length that float64 is written into a `TensorArray` of float32."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _tried(signature: Signature, cases: Sequence[Case]) -> list[Arrays] | None:
    try:
        (found,) = _outputs(clone_with_policies(signature, "float32", ()), cases[:1])
        if not is_same_model(found, cases[0].outputs):  # not all of a layer need be in its config
            return None
        return list(_outputs(clone_with_policies(signature, "float64", ("float32",), inputs_too=True), cases))
    except Exception:  # noqa: BLE001 - from_config, build and call are the user's own code, made for float32
        return None


def _outputs(clone: Signature, cases: Sequence[Case]) -> Iterator[Arrays]:
    """Yield a clone's outputs under the names of the model, whose inputs and outputs it has in order."""
    names = [spec.name for spec in clone.inputs]
    for case in cases:
        outputs = clone.run(dict(zip(names, case.inputs.values(), strict=True)))
        yield dict(zip(case.outputs, outputs.values(), strict=True))
