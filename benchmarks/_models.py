"""The models of plans, with our layers and with Keras's own, as a Keras user writes them.

Keras's layers are given the call arguments of ours: masks are built in front of them from the lengths, and additive
scores get the projections that ours have.
"""

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect
warnings.filterwarnings("ignore", message=".*np.object", category=FutureWarning)  # Keras's exporter in 3.15.1

import keras  # noqa: E402
from _plans import QUERY_LENGTHS, UNCHANGED, Plan  # noqa: E402
from keras import ops  # noqa: E402

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention  # noqa: E402

Layer = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def ours(plan: Plan, query_block_size: int | str | None = "auto") -> keras.Model:
    """Return the model of a plan with our layers, always with the same weights."""
    keras.utils.set_random_seed(0)
    if plan.kind == "bert":
        import keras_hub

        return keras_hub.models.BertBackbone(
            vocabulary_size=1000, num_layers=4, num_heads=4, hidden_dim=256, intermediate_dim=1024, dropout=0.0,
            max_sequence_length=512,
        )  # fmt: skip
    if plan.kind == "dates":
        return _date_model(AdditiveAttention)
    if plan.kind == "additive":
        return _around(AdditiveAttention(plan.D, query_block_size=query_block_size, name="attention"), plan)
    if plan.kind == "dot":
        return _around(DotProductAttention(name="attention"), plan)
    layer = KerasMultiHead(plan.H) if plan.kind == "stock block" else MultiHeadAttention(DotProductAttention(), plan.H)
    return _around(layer, plan)


def theirs(plan: Plan) -> keras.Model:
    """Return the model of a plan with Keras's layers, and the weights of ours."""
    mine = ours(plan)
    if plan.kind in UNCHANGED:
        return mine
    if plan.kind == "dates":
        model = _date_model(KerasAdditive)
    elif plan.kind == "additive":
        model = _around(KerasAdditive(plan.D), plan)
    else:
        model = _around(KerasDot() if plan.kind == "dot" else KerasMultiHead(plan.H), plan)
    variables = [variable for variable in model.weights if variable.shape != ()]  # all but the scale of dot products
    for variable, array in zip(variables, mine.get_weights(), strict=True):
        variable.assign(array.reshape(variable.shape))  # heads have an axis in Keras's kernels, and none in ours
    return model


def rest_of_block(x: Any, attended: Any) -> Any:
    """The rest of the encoder block of Vaswani et al. 2017."""
    width = x.shape[-1]
    x = keras.layers.LayerNormalization()(x + attended)
    y = keras.layers.Dense(4 * width, activation="relu")(x)
    return keras.layers.LayerNormalization()(x + keras.layers.Dense(width)(y))


def _around(layer: Layer, plan: Plan) -> keras.Model:
    order = {"use_causal_mask": plan.causal, **({"window": plan.window} if plan.window else {})}
    rows = (None,) if plan.lengths == QUERY_LENGTHS else ()
    lengths = [keras.Input(rows, dtype="int32", name="valid_lens")] if plan.lengths else []
    if plan.kind in ("block", "stock block"):
        x = keras.Input((None, plan.D), name="inputs")
        return keras.Model([x, *lengths], rest_of_block(x, layer(x, x, x, *lengths, **order)))
    sequences = [keras.Input((None, plan.D), name=name) for name in ("queries", "keys", "values")]
    outputs = layer(*sequences, *lengths, return_attention_scores=plan.weights, **order)
    return keras.Model([*sequences, *lengths], list(outputs) if plan.weights else outputs)


def _date_model(layer: Layer) -> keras.Model:
    """The model of examples/date_normaliser.py with this layer in the place of its attention."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    import date_data
    import date_model

    with mock.patch.object(date_model, "AdditiveAttention", layer):
        return date_model.build_model(len(date_data.make_vocabulary()) + 2)


def _seen(keys: Any, valid_lens: Any) -> Any:
    """A boolean mask of the keys before each length, with one more axis than the lengths."""
    return ops.arange(ops.shape(keys)[1], dtype="int32") < ops.expand_dims(valid_lens, -1)


class KerasDot(keras.layers.Layer):
    """`keras.layers.Attention` with a scale of `D**-0.5`."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = keras.layers.Attention(use_scale=True)

    def build(self, queries_shape: Any, keys_shape: Any, values_shape: Any, valid_lens_shape: Any = None) -> None:
        self.attention.build([queries_shape, values_shape, keys_shape])
        self.attention.scale.assign(queries_shape[-1] ** -0.5)

    def call(self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, **order: Any) -> Any:
        mask = None if valid_lens is None else [None, _seen(keys, valid_lens)]
        return self.attention([queries, values, keys], mask=mask, **order)


class KerasAdditive(keras.layers.Layer):
    """`keras.layers.AdditiveAttention` over projected queries and keys."""

    def __init__(self, units: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self.project_queries = keras.layers.Dense(units, use_bias=False)
        self.project_keys = keras.layers.Dense(units, use_bias=False)
        self.attention = keras.layers.AdditiveAttention()

    def build(self, queries_shape: Any, keys_shape: Any, values_shape: Any, valid_lens_shape: Any = None) -> None:
        units = self.project_queries.units
        self.project_queries.build(queries_shape)
        self.project_keys.build(keys_shape)
        self.attention.build([(*queries_shape[:-1], units), values_shape, (*keys_shape[:-1], units)])

    def call(self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, **order: Any) -> Any:
        mask = None if valid_lens is None else [None, _seen(keys, valid_lens)]
        return self.attention([self.project_queries(queries), values, self.project_keys(keys)], mask=mask, **order)


class KerasMultiHead(keras.layers.Layer):
    """`keras.layers.MultiHeadAttention`; lengths and windows become its `attention_mask`."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def build(self, queries_shape: Any, keys_shape: Any, values_shape: Any, valid_lens_shape: Any = None) -> None:
        self.attention = keras.layers.MultiHeadAttention(self.heads, queries_shape[-1] // self.heads)
        self.attention.build(queries_shape, values_shape, keys_shape)

    def call(
        self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, window: Any = None, **order: Any
    ) -> Any:
        mask = None
        if valid_lens is not None:
            mask = _seen(keys, valid_lens)  # (B, Tk), or (B, Tq, Tk) of lengths of queries
            mask = mask if len(mask.shape) == 3 else ops.expand_dims(mask, 1)
        if window is not None:
            gaps = ops.arange(ops.shape(keys)[1]) - ops.expand_dims(ops.arange(ops.shape(queries)[1]), 1)
            band = ops.expand_dims(ops.logical_and(gaps >= -window[0], gaps <= window[1]), 0)
            mask = band if mask is None else ops.logical_and(mask, band)
        return self.attention(queries, values, keys, attention_mask=mask, **order)
