"""Contestants that run training steps of Keras models, on any backend."""

import os
from dataclasses import asdict
from typing import Any

import numpy as np
from _contestant import Arrays, Build, Runner
from _plans import Plan

# The gradient is the change of the weights by one step: a large rate keeps it above float32 rounding. With the small
# rate of timed steps, the weights hardly change.
LARGE_RATE, RATE = 1e3, 1e-3


def make_options(plan: Plan, builder: str, jit: bool, **arguments: Any) -> dict[str, Any]:
    """Return the options of a `build_training` contestant.

    Args:
        plan: The model.
        builder: Function of `_models.py` that builds the model: `"build_ours"` or `"build_theirs"`.
        jit: Whether XLA compiles the training step.
        **arguments: Further arguments of that function.
    """
    return {"plan": asdict(plan), "builder": builder, "jit": jit, "arguments": arguments}


def build_training(spec: dict[str, Any]) -> Build:
    """Build training steps by `train_on_batch`, which `fit` calls; the answer is the gradient of all weights."""
    _import_backend(spec)
    import _models  # noqa: F401 - part of the imports, not of the model

    def build(inputs: Arrays) -> Runner:
        steps = _TrainingSteps(spec["options"], inputs)
        return Runner(steps.run, steps.gradient)

    return build


class _TrainingSteps:
    def __init__(self, options: dict[str, Any], inputs: Arrays) -> None:
        import keras

        self.model = _build_model(options)
        self.optimizer = keras.optimizers.SGD(RATE)
        self.model.compile(self.optimizer, "mse", jit_compile=options["jit"])
        *self.arrays, self.target = inputs.values()
        self.start = self.model.get_weights()

    def run(self) -> None:
        self.model.train_on_batch(self.arrays, self.target)

    def gradient(self) -> list[np.ndarray]:
        self._reset(LARGE_RATE)
        self.run()
        pairs = zip(self.start, self.model.get_weights(), strict=True)
        gradients = [((before - after) / LARGE_RATE).ravel() for before, after in pairs]
        self._reset(RATE)
        # One array: the gradient of a bias of keys is only rounding error, so its relative difference means nothing.
        return [np.concatenate(gradients)]

    def _reset(self, rate: float) -> None:
        self.model.set_weights(self.start)
        self.optimizer.learning_rate = rate


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
