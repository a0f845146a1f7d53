"""Contestants that run training steps of Keras models, on any backend."""

import os
from dataclasses import asdict
from typing import Any

import numpy as np
from _contestant import Arrays, Build, Runner
from _plans import Plan

# The gradient is computed from the change of the weights by one step: with a large learning rate, so that the change is
# above float32 rounding. Timed steps have a small rate, so that the weights hardly change.
GRADIENT_LEARNING_RATE, TIMED_LEARNING_RATE = 1e3, 1e-3


def make_options(plan: Plan, builder: str, jit: bool, **arguments: Any) -> dict[str, Any]:
    """Return the options of a `build_training` contestant.

    Args:
        plan: The model.
        builder: Function of `_models.py` that builds the model: `"build_ours"` or `"build_theirs"`.
        jit: True if XLA compiles the training step.
        **arguments: Further arguments of that function.
    """
    return {"plan": asdict(plan), "builder": builder, "jit": jit, "arguments": arguments}


def build_training(spec: dict[str, Any]) -> Build:
    """Build training steps by `train_on_batch`, which `fit` calls; the answer is the gradient of all weights."""
    _import_backend(spec)
    import _models  # noqa: F401 - part of the imports, not of the model

    def build(inputs: Arrays) -> Runner:
        steps = _TrainingSteps(spec["options"], inputs)
        return Runner(steps.run, steps.compute_gradient)

    return build


class _TrainingSteps:
    def __init__(self, options: dict[str, Any], inputs: Arrays) -> None:
        import keras

        self.model = _build_model(options)
        self.optimizer = keras.optimizers.SGD(TIMED_LEARNING_RATE)
        self.model.compile(self.optimizer, "mse", jit_compile=options["jit"])
        *self.arrays, self.target = inputs.values()
        self.initial_weights = self.model.get_weights()

    def run(self) -> None:
        self.model.train_on_batch(self.arrays, self.target)

    def compute_gradient(self) -> list[np.ndarray]:
        self._reset(GRADIENT_LEARNING_RATE)
        self.run()
        pairs = zip(self.initial_weights, self.model.get_weights(), strict=True)
        gradients = [((initial - updated) / GRADIENT_LEARNING_RATE).ravel() for initial, updated in pairs]
        self._reset(TIMED_LEARNING_RATE)
        # One array: the gradient of a key bias is only rounding error, and two rounding errors are not comparable.
        return [np.concatenate(gradients)]

    def _reset(self, learning_rate: float) -> None:
        self.model.set_weights(self.initial_weights)
        self.optimizer.learning_rate = learning_rate


def _build_model(options: dict[str, Any]) -> Any:
    import _models

    return getattr(_models, options["builder"])(Plan(**options["plan"]), **options["arguments"])


def _import_backend(spec: dict[str, Any]) -> None:
    """Import the backend of Keras with the threads of the spec."""
    backend, threads = os.environ.get("KERAS_BACKEND", "tensorflow"), spec["threads"]
    if backend == "torch":
        import torch

        torch.set_num_threads(threads)
    elif backend == "jax":
        import jax  # noqa: F401 - raises here if jax is missing
    else:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
