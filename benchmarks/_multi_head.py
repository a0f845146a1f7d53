"""Training steps of multi-head self-attention, ours or Keras's, on the backend that `KERAS_BACKEND` names."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn import DotProductAttention, MultiHeadAttention

Arrays = dict[str, np.ndarray]


class Training:
    """Training steps through the loop that `fit` uses."""

    def __init__(self, options: dict[str, Any], inputs: Arrays, rate: float) -> None:
        self.model = _model(options)
        self.optimizer = keras.optimizers.SGD(rate)
        self.model.compile(self.optimizer, "mse", jit_compile=options["jit"])
        self.arrays, self.target = [inputs["inputs"], inputs["lengths"]], inputs["target"]

    def run(self) -> None:
        self.model.train_on_batch(self.arrays, self.target)

    def set(self, weights: list[np.ndarray], rate: float) -> None:
        """Set all weights from one vector: the heads have an axis in Keras's kernels, and none in ours."""
        shapes = [variable.shape for variable in self.model.weights]
        parts = np.split(weights[0], np.cumsum([np.prod(shape) for shape in shapes])[:-1])
        self.model.set_weights([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])
        self.optimizer.learning_rate = rate

    def read(self) -> list[np.ndarray]:
        return [np.concatenate([array.ravel() for array in self.model.get_weights()])]


def random_weights(options: dict[str, Any]) -> list[np.ndarray]:
    """Return the weights of either layer as one vector."""
    size = options["size"]["D"]
    return [np.random.default_rng(1).standard_normal(4 * (size * size + size), "float32") * np.float32(size**-0.5)]


def _model(options: dict[str, Any]) -> keras.Model:
    size, mask = options["size"], options["mask"]
    inputs = keras.Input((None, size["D"]))
    lengths = keras.Input((), dtype="int32")
    causal = mask == "causal"
    if options["layer"].startswith("keras."):
        layer = keras.layers.MultiHeadAttention(size["H"], size["D"] // size["H"])
        seen = ops.less(ops.arange(size["T"], dtype="int32"), ops.expand_dims(ops.expand_dims(lengths, -1), -1))
        outputs = layer(inputs, inputs, attention_mask=seen if mask == "lengths" else None, use_causal_mask=causal)
    else:
        layer = MultiHeadAttention(DotProductAttention(), size["H"])
        outputs = layer(inputs, inputs, inputs, lengths if mask == "lengths" else None, use_causal_mask=causal)
    return keras.Model([inputs, lengths], outputs)
