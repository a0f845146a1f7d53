"""Training steps of models in Keras, on any backend."""

import os
from dataclasses import asdict
from typing import Any

import numpy as np
from _contestant import Arrays, Build, Runner
from _plans import Plan

LARGE_RATE, RATE = 1e3, 1e-3  # a large step shows the gradient in float32 weights; timed steps leave them as they are


def options_of(plan: Plan, whose: str, jit: bool, **arguments: Any) -> dict[str, Any]:
    """Return the options of the contestant below.

    Args:
        plan: The model.
        whose: The function of `_models.py` that makes it: `"ours"` or `"theirs"`.
        jit: Whether XLA compiles it.
        **arguments: What else that function gets.
    """
    return {"plan": asdict(plan), "whose": whose, "jit": jit, "arguments": arguments}


def training(spec: dict[str, Any]) -> Build:
    """Training steps through the loop that `fit` uses; the answer is the gradient of all weights."""
    _import_backend(spec)
    import _models  # noqa: F401 - part of the imports, not of the model

    def build(inputs: Arrays) -> Runner:
        steps = _Steps(spec["options"], inputs)
        return Runner(steps.run, steps.gradient)

    return build


class _Steps:
    def __init__(self, options: dict[str, Any], inputs: Arrays) -> None:
        import keras

        self.model = _model(options)
        self.optimizer = keras.optimizers.SGD(RATE)
        self.model.compile(self.optimizer, "mse", jit_compile=options["jit"])
        *self.arrays, self.target = inputs.values()
        self.start = self.model.get_weights()

    def run(self) -> None:
        self.model.train_on_batch(self.arrays, self.target)

    def gradient(self) -> list[np.ndarray]:
        self._begin(LARGE_RATE)
        self.run()
        moved = zip(self.start, self.model.get_weights(), strict=True)
        gradients = [((before - after) / LARGE_RATE).ravel() for before, after in moved]
        self._begin(RATE)
        return [np.concatenate(gradients)]  # as one: that of a bias of keys is 0, but for rounding

    def _begin(self, rate: float) -> None:
        self.model.set_weights(self.start)
        self.optimizer.learning_rate = rate


def _model(options: dict[str, Any]) -> Any:
    import _models

    return getattr(_models, options["whose"])(Plan(**options["plan"]), **options["arguments"])


def _import_backend(spec: dict[str, Any]) -> None:
    """Import the backend of Keras with the threads of the spec."""
    backend, threads = os.environ.get("KERAS_BACKEND", "tensorflow"), spec["threads"]
    if backend == "torch":
        import torch

        torch.set_num_threads(threads)
    elif backend == "jax":
        import jax  # noqa: F401 - to be missed here
    else:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
