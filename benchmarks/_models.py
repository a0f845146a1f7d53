"""Models of plans, with layers of this package ("ours") and with Keras's own ("theirs").

Wrappers give Keras's layers the call arguments of this package: masks are built from valid lengths, and additive scores
get projections.
"""

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # has no effect after TensorFlow is imported
warnings.filterwarnings("ignore", message=".*np.object", category=FutureWarning)  # Keras's exporter in 3.15.1

import keras  # noqa: E402
from _plans import QUERY_LENGTHS, UNCHANGED, Plan  # noqa: E402
from keras import ops  # noqa: E402

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention  # noqa: E402

Layer = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def build_ours(plan: Plan, query_block_size: int | str | None = "auto") -> keras.Model:
    """Build the model of a plan with layers of this package, always with the same weights."""
    keras.utils.set_random_seed(0)
    if plan.kind == "bert":
        import keras_hub

        return keras_hub.models.BertBackbone(
            vocabulary_size=1000, num_layers=4, num_heads=4, hidden_dim=256, intermediate_dim=1024, dropout=0.0,
            max_sequence_length=512,
        )  # fmt: skip
    if plan.kind == "dates":
        return _build_date_model(AdditiveAttention)
    if plan.kind == "additive":
        return wrap_layer(AdditiveAttention(plan.D, query_block_size=query_block_size, name="attention"), plan)
    if plan.kind == "dot":
        return wrap_layer(DotProductAttention(name="attention"), plan)
    layer = KerasMultiHead(plan.H) if plan.kind == "stock block" else MultiHeadAttention(DotProductAttention(), plan.H)
    return wrap_layer(layer, plan)


def build_theirs(plan: Plan) -> keras.Model:
    """Build the model of a plan with Keras's layers and the weights of `build_ours`."""
    reference = build_ours(plan)
    if plan.kind in UNCHANGED:
        return reference
    if plan.kind == "dates":
        model = _build_date_model(KerasAdditive)
    elif plan.kind == "additive":
        model = wrap_layer(KerasAdditive(plan.D), plan)
    else:
        model = wrap_layer(KerasDot() if plan.kind == "dot" else KerasMultiHead(plan.H), plan)
    variables = [variable for variable in model.weights if variable.shape != ()]  # Keras's dot product has a scale
    for variable, array in zip(variables, reference.get_weights(), strict=True):
        variable.assign(array.reshape(variable.shape))  # Keras's kernels have an axis of heads
    return model


def add_feed_forward(inputs: Any, attended: Any) -> Any:
    """Apply the layers of an encoder block (Vaswani et al., 2017) after its attention."""
    width = inputs.shape[-1]
    hidden = keras.layers.LayerNormalization()(inputs + attended)
    expanded = keras.layers.Dense(4 * width, activation="relu")(hidden)
    return keras.layers.LayerNormalization()(hidden + keras.layers.Dense(width)(expanded))


def wrap_layer(layer: Layer, plan: Plan) -> keras.Model:
    """Build a model of one attention layer, with the inputs and the masks of a plan."""
    options = {"use_causal_mask": plan.causal, **({"window": plan.window} if plan.window else {})}
    lengths_shape = (None,) if plan.length_kind == QUERY_LENGTHS else ()
    lengths = [keras.Input(lengths_shape, dtype="int32", name="valid_lens")] if plan.length_kind else []
    if plan.kind in ("block", "stock block"):
        x = keras.Input((None, plan.D), name="inputs")
        return keras.Model([x, *lengths], add_feed_forward(x, layer(x, x, x, *lengths, **options)))
    sequences = [keras.Input((None, plan.D), name=name) for name in ("queries", "keys", "values")]
    outputs = layer(*sequences, *lengths, return_attention_scores=plan.returns_weights, **options)
    return keras.Model([*sequences, *lengths], list(outputs) if plan.returns_weights else outputs)


def _build_date_model(layer: Layer) -> keras.Model:
    """Build the model of examples/date_normaliser.py with `layer` as its attention."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    import date_data
    import date_model

    with mock.patch.object(date_model, "AdditiveAttention", layer):
        return date_model.build_model(len(date_data.make_vocabulary()) + 2)


def make_key_mask(keys: Any, valid_lens: Any) -> Any:
    """Return a boolean mask of valid keys (..., Tk) for lengths (...,)."""
    return ops.arange(ops.shape(keys)[1], dtype="int32") < ops.expand_dims(valid_lens, -1)


class KerasDot(keras.layers.Layer):
    """`keras.layers.Attention` with a scale of `D**-0.5`."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = keras.layers.Attention(use_scale=True)

    def build(self, queries_shape: Any, keys_shape: Any, values_shape: Any, valid_lens_shape: Any = None) -> None:
        self.attention.build([queries_shape, values_shape, keys_shape])
        self.attention.scale.assign(queries_shape[-1] ** -0.5)

    def call(self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, **options: Any) -> Any:
        mask = None if valid_lens is None else [None, make_key_mask(keys, valid_lens)]
        return self.attention([queries, values, keys], mask=mask, **options)


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

    def call(self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, **options: Any) -> Any:
        mask = None if valid_lens is None else [None, make_key_mask(keys, valid_lens)]
        return self.attention([self.project_queries(queries), values, self.project_keys(keys)], mask=mask, **options)


class KerasMultiHead(keras.layers.Layer):
    """`keras.layers.MultiHeadAttention`, with an `attention_mask` for lengths and a window."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def build(self, queries_shape: Any, keys_shape: Any, values_shape: Any, valid_lens_shape: Any = None) -> None:
        self.attention = keras.layers.MultiHeadAttention(self.heads, queries_shape[-1] // self.heads)
        self.attention.build(queries_shape, values_shape, keys_shape)

    def call(
        self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, window: Any = None, **options: Any
    ) -> Any:
        mask = None
        if valid_lens is not None:
            mask = make_key_mask(keys, valid_lens)  # (B, Tk), or (B, Tq, Tk) for lengths per query
            mask = mask if len(mask.shape) == 3 else ops.expand_dims(mask, 1)
        if window is not None:
            offsets = ops.arange(ops.shape(keys)[1]) - ops.expand_dims(ops.arange(ops.shape(queries)[1]), 1)
            band = ops.expand_dims(ops.logical_and(offsets >= -window[0], offsets <= window[1]), 0)
            mask = band if mask is None else ops.logical_and(mask, band)
        return self.attention(queries, values, keys, attention_mask=mask, **options)
