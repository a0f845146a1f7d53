"""Models in which a wrong ONNX file is hard to detect: fill values, tiny outputs, columns of different scale.

`perturb_weights` changes the initial weights: no bias stays zero, and no statistics stay at their initial values.
"""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
from keras import layers, ops
from small_bundle import build_small_model

Arrays = dict[str, np.ndarray]


def perturb_weights(model, seed=0):
    """Add noise to every weight, a tenth of its standard deviation; variances stay positive."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        values = keras.ops.convert_to_numpy(weight.value)
        if values.dtype.kind == "f":
            noisy = values + 0.1 * (values.std() or 1.0) * rng.standard_normal(values.shape)
            weight.assign((np.abs(noisy) + 0.1 if "variance" in weight.path else noisy).astype(values.dtype))
    return model


def build_logits_with_fills():
    x, mask = keras.Input((None, 6), name="x"), keras.Input((None,), dtype="bool", name="seen")
    scores = ops.squeeze(layers.Dense(1, name="score")(layers.Dense(7, activation="tanh", name="hidden")(x)), -1)
    return keras.Model([x, mask], {"logits": ops.where(mask, scores, -1e9)})


class Causal(layers.Layer):
    """Adds -1e9 to the scores of later positions."""

    def call(self, scores):
        steps = ops.arange(ops.shape(scores)[-1])
        return scores + ops.where(ops.expand_dims(steps, -1) >= steps, 0.0, -1e9)


def build_causal_scores_with_fills():
    x = keras.Input((None, 6), name="x")
    q, k = layers.Dense(5, name="q")(x), layers.Dense(5, name="k")(x)
    scores = ops.matmul(q, ops.swapaxes(k, -1, -2))
    return keras.Model(x, {"scores": Causal(name="causal")(scores)})


def build_tiny_outputs():
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = layers.GRU(7, name="gru")(layers.Embedding(30, 6, mask_zero=True, name="table")(ids))
    return keras.Model(ids, {"y": layers.Rescaling(1e-7, name="tiny")(layers.Dense(3, name="out")(hidden))})


def build_columns_of_different_scale():
    x = keras.Input((6,), name="x")
    hidden = layers.Dense(8, activation="gelu", name="hidden")(x)
    large = layers.Rescaling(1e6, name="large")(layers.Dense(1, name="a")(hidden))
    small = layers.Dense(3, activation="tanh", name="b")(hidden)
    return keras.Model(x, {"mixed": layers.Concatenate(name="mixed")([large, small])})


def build_rows_of_different_scale():
    x, powers = keras.Input((None, 5), name="x"), keras.Input((None, 1), name="exponent")
    return keras.Model([x, powers], {"y": layers.Dense(4, activation="elu", name="d")(x) * ops.exp(3.0 * powers)})


def build_integer_outputs():
    x = keras.Input((None, 6), name="x")
    scores = layers.Dense(4, name="scores")(layers.Dense(9, activation="relu", name="hidden")(x))
    return keras.Model(x, {"label": ops.argmax(scores, -1), "positive": ops.any(scores > 0.5, axis=-1)})


def build_masked_by_floats():
    ids, mask = keras.Input((None,), dtype="int32", name="ids"), keras.Input((None,), name="attention_mask")
    table = layers.Embedding(30, 8, name="table")(ids)
    scores = ops.matmul(layers.Dense(8, name="q")(table), ops.swapaxes(layers.Dense(8, name="k")(table), -1, -2))
    weights = ops.softmax(scores * 30 + (1 - ops.expand_dims(mask, 1)) * -1e9)
    return keras.Model([ids, mask], {"y": layers.Dense(3, name="out")(ops.matmul(weights, table))})


def draw_texts_and_masks(rng):
    """Draw ids of texts of one to eight words, padded as by a tokenizer."""
    lens = rng.integers(1, 9, (5, 1))
    return {
        "ids": rng.integers(0, 30, (5, 8)).astype("int32"),
        "attention_mask": (np.arange(8) < lens).astype("float32"),
    }


@dataclass(frozen=True)
class MutationModel:
    """A builder of a model, the lowering of its export, and its precisions in addition to float32.

    `draw_new_inputs` draws inputs on which a mutant must differ, if the exporter's own inputs could hide the mutation.
    """

    build: Callable[[], keras.Model]
    precisions: tuple[str, ...] = ()
    draw_new_inputs: Callable[[np.random.Generator], Arrays] | None = None
    lowering: str = "portable"


HALF = ("float16", "int8")
MODELS = {
    "build_small_model": MutationModel(build_small_model, HALF),
    "logits_with_fills": MutationModel(build_logits_with_fills),
    "causal_scores_with_fills": MutationModel(build_causal_scores_with_fills),
    "tiny_outputs": MutationModel(build_tiny_outputs, HALF),
    "columns_of_different_scale": MutationModel(build_columns_of_different_scale),
    "rows_of_different_scale": MutationModel(build_rows_of_different_scale),
    "integer_outputs": MutationModel(build_integer_outputs, HALF),
    "masked_by_floats": MutationModel(build_masked_by_floats, draw_new_inputs=draw_texts_and_masks),
}
