"""Models with our layers, and the same with Keras's own, as a Keras user writes them. Imports TensorFlow.

The layers below have the call arguments of ours and are made of what Keras has: masks are built in front of its layers
from the lengths, and additive scores get the projections that ours have.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _models  # noqa: F401 - sees to what TensorFlow says before it is imported
import keras
import numpy as np
from _sizes import ALL_VALID
from keras import ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention

Arrays = dict[str, np.ndarray]
Layer = Callable[..., Any]
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

DOT, ADDITIVE, MULTI_HEAD, BLOCK, DATES, BERT = "dot", "additive", "multi-head", "block", "dates", "bert"
TITLES = {
    DOT: "dot product", ADDITIVE: "additive", MULTI_HEAD: "multi-head", BLOCK: "Transformer block",
    DATES: "date normaliser", BERT: "BERT, 4 layers, unchanged",
}  # fmt: skip
LENGTHS, QUERY_LENGTHS = "lengths", "length per query"
DATE_CHARACTERS = 30


@dataclass(frozen=True)
class Plan:
    """A model, for all batches and lengths.

    Attributes:
        kind: A key of `TITLES`.
        D: Size of queries, keys and values.
        H: Heads.
        lengths: `LENGTHS`, `QUERY_LENGTHS`, or empty where there are none.
        causal: Whether a query sees the keys up to its own place only.
        window: How many keys before and after its own place a query sees, or `None` for all.
        weights: Whether the attention weights are returned too.
    """

    kind: str
    D: int = 0
    H: int = 1
    lengths: str = LENGTHS
    causal: bool = False
    window: tuple[int, int] | None = None
    weights: bool = False

    def __str__(self) -> str:
        sizes = f" {'U' if self.kind == ADDITIVE else 'D'}{self.D}" if self.D and self.kind != BERT else ""
        heads = f" H{self.H}" if self.kind in (MULTI_HEAD, BLOCK) else ""
        extras = {
            QUERY_LENGTHS: self.lengths == QUERY_LENGTHS, "causal": self.causal,
            f"window {self.window}": self.window, "returns weights": self.weights,
        }  # fmt: skip
        return ", ".join([f"{TITLES[self.kind]}{sizes}{heads}", *(name for name, there in extras.items() if there)])

    def inputs(self, B: int, Tq: int, Tk: int, fill: str) -> Arrays:
        """Return normal numbers, random characters and words, and lengths: all keys, or half of them on average."""
        rng = np.random.default_rng(0)
        lengths = np.full(B, Tk) if fill == ALL_VALID else _spread(Tk, (B,))
        if self.kind == DATES:
            characters, locale = rng.integers(2, 60, (B, Tk)), rng.integers(0, 38, B)
            return _integers(characters=characters, locale=locale, valid_lens=np.maximum(lengths, 4))
        if self.kind == BERT:
            words, parts = rng.integers(0, 1000, (B, Tk)), np.zeros((B, Tk))
            return _integers(token_ids=words, segment_ids=parts, padding_mask=np.arange(Tk) < lengths[:, None])
        if self.kind == BLOCK:
            return {"inputs": rng.standard_normal((B, Tk, self.D), dtype="float32"), **_integers(valid_lens=lengths)}
        shapes = {"queries": (B, Tq, self.D), "keys": (B, Tk, self.D), "values": (B, Tk, self.D)}
        arrays = {name: rng.standard_normal(shape, dtype="float32") for name, shape in shapes.items()}
        if self.lengths == QUERY_LENGTHS:
            lengths = np.full((B, Tq), Tk) if fill == ALL_VALID else _spread(Tk, (B, Tq))
        return {**arrays, **_integers(valid_lens=lengths)} if self.lengths else arrays

    def models(self) -> tuple[keras.Model, keras.Model]:
        """Return the model with our layers and the one with Keras's, with the same weights."""
        keras.utils.set_random_seed(0)
        if self.kind == BERT:
            import keras_hub

            backbone = keras_hub.models.BertBackbone(
                vocabulary_size=1000, num_layers=4, num_heads=4, hidden_dim=256, intermediate_dim=1024, dropout=0.0,
                max_sequence_length=512,
            )  # fmt: skip
            return backbone, backbone
        ours, theirs = self._model(self._ours()), self._model(self._theirs())
        arrays = ours.get_weights()
        shapes = [weight for weight in theirs.weights if weight.shape != ()]  # all but the scale of dot products
        for variable, array in zip(shapes, arrays, strict=True):
            variable.assign(
                array.reshape(variable.shape)
            )  # the heads have an axis in Keras's kernels, and none in ours
        return ours, theirs

    def _ours(self) -> Layer:
        if self.kind == DATES:
            return AdditiveAttention
        if self.kind == ADDITIVE:
            return AdditiveAttention(self.D, name="attention")
        return (
            DotProductAttention(name="attention")
            if self.kind == DOT
            else MultiHeadAttention(DotProductAttention(), self.H)
        )

    def _theirs(self) -> Layer:
        if self.kind == DATES:
            return KerasAdditive
        if self.kind == ADDITIVE:
            return KerasAdditive(self.D)
        return KerasDot() if self.kind == DOT else KerasMultiHead(self.H)

    def _model(self, layer: Layer) -> keras.Model:
        if self.kind == DATES:
            return _date_model(layer)
        order = {"use_causal_mask": self.causal, **({"window": self.window} if self.window else {})}
        rows = (None,) if self.lengths == QUERY_LENGTHS else ()
        lengths = [keras.Input(rows, dtype="int32", name="valid_lens")] if self.lengths else []
        if self.kind == BLOCK:
            x = keras.Input((None, self.D), name="inputs")
            return keras.Model([x, *lengths], rest_of_block(x, layer(x, x, x, *lengths, **order)))
        sequences = [keras.Input((None, self.D), name=name) for name in ("queries", "keys", "values")]
        outputs = layer(*sequences, *lengths, return_attention_scores=self.weights, **order)
        return keras.Model([*sequences, *lengths], list(outputs) if self.weights else outputs)


def _spread(Tk: int, shape: tuple[int, ...]) -> np.ndarray:
    """Lengths spread evenly from few keys to nearly all."""
    return np.maximum(1, np.linspace(0, Tk, int(np.prod(shape)) + 2)[1:-1]).reshape(shape)


def _integers(**arrays: np.ndarray) -> Arrays:
    return {name: array.astype("int32") for name, array in arrays.items()}


def rest_of_block(x: Any, attended: Any) -> Any:
    """The rest of the encoder block of Vaswani et al. 2017."""
    width = x.shape[-1]
    x = keras.layers.LayerNormalization()(x + attended)
    y = keras.layers.Dense(4 * width, activation="relu")(x)
    return keras.layers.LayerNormalization()(x + keras.layers.Dense(width)(y))


def _date_model(layer: Layer) -> keras.Model:
    """The model of examples/date_normaliser.py with this layer in the place of its attention."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    import date_data
    import date_model

    original = date_model.AdditiveAttention
    date_model.AdditiveAttention = layer
    try:
        return date_model.build_model(len(date_data.make_vocabulary()) + 2)
    finally:
        date_model.AdditiveAttention = original


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

    def call(
        self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:  # fmt: skip
        mask = None if valid_lens is None else [None, _seen(keys, valid_lens)]
        return self.attention(
            [queries, values, keys], mask=mask, use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )  # fmt: skip


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

    def call(
        self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:  # fmt: skip
        mask = None if valid_lens is None else [None, _seen(keys, valid_lens)]
        return self.attention(
            [self.project_queries(queries), values, self.project_keys(keys)], mask=mask,
            use_causal_mask=use_causal_mask, return_attention_scores=return_attention_scores,
        )  # fmt: skip


class KerasMultiHead(keras.layers.Layer):
    """`keras.layers.MultiHeadAttention`; lengths and windows become its `attention_mask`."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def build(self, queries_shape: Any, keys_shape: Any, values_shape: Any, valid_lens_shape: Any = None) -> None:
        self.attention = keras.layers.MultiHeadAttention(self.heads, queries_shape[-1] // self.heads)
        self.attention.build(queries_shape, values_shape, keys_shape)

    def call(
        self, queries: Any, keys: Any, values: Any, valid_lens: Any = None, use_causal_mask: bool = False,
        window: tuple[int, int] | None = None, return_attention_scores: bool = False,
    ) -> Any:  # fmt: skip
        mask = None
        if valid_lens is not None:
            mask = _seen(keys, valid_lens)  # (B, Tk), or (B, Tq, Tk) of lengths of queries
            mask = mask if len(mask.shape) == 3 else ops.expand_dims(mask, 1)
        if window is not None:
            gaps = ops.arange(ops.shape(keys)[1]) - ops.expand_dims(ops.arange(ops.shape(queries)[1]), 1)
            band = ops.expand_dims(ops.logical_and(gaps >= -window[0], gaps <= window[1]), 0)
            mask = band if mask is None else ops.logical_and(mask, band)
        return self.attention(
            queries, values, keys, attention_mask=mask, use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )  # fmt: skip
