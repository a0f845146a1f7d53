"""Attention pooling: score, mask, softmax, dropout, weighted sum."""

import contextlib
from functools import partial
from typing import Any

import keras
from keras import ops

from ._arguments import check_dropout, check_seed
from ._checks import (
    check_given,
    check_masks,
    check_pooling_shapes,
    check_real,
    check_score_result,
    scores_shape_of,
    shape_of,
)
from ._composite import Scoring, composite_of, current_evaluator, pool
from ._masking import combine_masks, hide_unseen, split_lengths
from ._policies import policy_with_quantized_sublayers
from ._types import Masks, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionPooling(keras.layers.Layer):
    """Base of the attention layers: a weighted mean of the values, weights by a softmax over scores.

    `output = dropout(softmax(score(queries, keys))) values`, the softmax over the keys that take part.

    A subclass gives `score(queries, keys)`, which returns `B + (Tq, Tk)`, and where it has weights
    `build(queries_shape, keys_shape, values_shape)`. Masks, softmax, dropout and shapes are done here.

    Axes: `B` one or more batch axes, `Tq` queries, `Tk` keys, `Dq`, `Dk`, `Dv` sizes.

    Args:
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the draws of the dropout, or None.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        queries: Floats, `B + (Tq, Dq)`.
        keys: Floats, `B + (Tk, Dk)`.
        values: Floats, `B + (Tk, Dv)`.
        valid_lens: Integers, `B` or `B + (Tq,)`. Key `j` takes part if `j < valid_lens`.
        attention_mask: Booleans that broadcast to `B + (Tq, Tk)`; True takes part.
        use_causal_mask: Whether query `i` sees only keys `j <= i`.
        return_attention_scores: Whether to return the weights as well.
        training: Whether dropout acts.
        queries_mask: Booleans, `B + (Tq,)`. Filled by Keras from the mask that `queries` carries, unless given.
        keys_mask: Booleans, `B + (Tk,)`, likewise.
        values_mask: Booleans, `B + (Tk,)`, likewise.

    Returns:
        Output `B + (Tq, Dv)`; with `return_attention_scores=True` a pair of it and the weights `B + (Tq, Tk)`, taken
        after the softmax and before the dropout.

    Masking:
        A pair takes part when every mask given lets it. A query with no key gives zero weights, zero output and zero
        gradient. A key that no query may see, and its value, are replaced by zeros before they are used, and so are
        queries that see no key: NaN there reaches neither outputs nor gradients. The output carries `queries_mask`.

    Numerics:
        The softmax runs in float32 at least, whatever the dtype of the layer.

    Raises:
        TypeError: If lengths are not integers or a mask is not boolean.
        ValueError: If ranks or sizes do not agree.

    Example:
        >>> class NegativeDistance(AttentionPooling):
        ...     def score(self, queries, keys):
        ...         gaps = keras.ops.expand_dims(queries, -2) - keras.ops.expand_dims(keys, -3)
        ...         return -0.5 * keras.ops.sum(gaps**2, -1)
    """

    def __init__(self, dropout: float = 0.0, *, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dropout = check_dropout(dropout)
        self.seed = check_seed(seed)
        self.seed_generator = keras.random.SeedGenerator(self.seed) if self.dropout else None
        self.supports_masking = True

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Checks the shapes; a subclass makes its weights here."""
        check_given(keys=keys_shape, values=values_shape)  # Keras leaves out the shape of what is None
        self.check_shapes(tuple(queries_shape), tuple(keys_shape), tuple(values_shape))

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores each query against each key: `B + (Tq, Dq)` and `B + (Tk, Dk)` to `B + (Tq, Tk)`."""
        raise NotImplementedError(f"{type(self).__name__} must define `score(queries, keys)`.")

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raises ValueError when shapes do not agree; a subclass may add rules of its own."""
        check_pooling_shapes(queries_shape, keys_shape, values_shape)

    def call(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Any = None,
        *,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        queries_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
    ) -> Any:
        """Pools the values."""
        masks = Masks(valid_lens, attention_mask, queries_mask, keys_mask, values_mask)
        masks = self._check_call(queries, keys, values, masks)
        queries, keys, values = (ops.cast(x, self.compute_dtype) for x in (queries, keys, values))
        sizes = ops.shape(queries)[-2], ops.shape(keys)[-2], len(queries.shape)
        mask = combine_masks(masks, *sizes, causal=use_causal_mask)
        evaluate = None if self._drops(training) else current_evaluator()
        scoring = self._scoring(queries, keys, mask) if evaluate is not None and self._scores_by_name() else None
        if evaluate is not None and scoring is not None:
            lengths, others = split_lengths(masks, len(queries.shape))
            other_mask = combine_masks(others, *sizes, causal=use_causal_mask)
            composite = composite_of(scoring, values, lengths, other_mask, self)
            output, weights = evaluate(composite, return_attention_scores)
        else:
            queries, keys = hide_unseen(mask, queries, keys)
            scores = self.score(queries, keys)
            check_score_result(type(self).__name__, shape_of(scores), (*shape_of(queries)[:-1], shape_of(keys)[-2]))
            output, weights = pool(scores, values, mask, partial(self._drop, training=training))
        _carry_mask(output, masks.queries_mask)
        return (output, weights) if return_attention_scores else output

    def _scoring(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Scoring | None:
        """What an exporter may write in its own way, or None: it then gets the ops that `score` is made of.

        Args:
            queries: `B + (Tq, Dq)`; they may hold anything where the mask hides them.
            keys: `B + (Tk, Dk)`, likewise.
            mask: Booleans that broadcast to `B + (Tq, Tk)`, or None.
        """
        return None

    def _scores_by_name(self) -> bool:
        """Whether `_scoring` speaks of `score`: a subclass may have overridden `score` alone."""
        owners = (next(c for c in type(self).__mro__ if name in vars(c)) for name in ("score", "_scoring"))
        return next(owners) is next(owners)

    def _check_call(self, queries: Tensor, keys: Tensor, values: Tensor, masks: Masks) -> Masks:
        check_given(queries=queries, keys=keys, values=values)
        check_real(queries=queries, keys=keys, values=values)
        shapes = shape_of(queries), shape_of(keys), shape_of(values)
        self.check_shapes(*shapes)
        return check_masks(masks, *shapes)

    def _drops(self, training: bool | None) -> bool:
        return bool(training) and self.seed_generator is not None

    def _drop(self, weights: Tensor, training: bool | None) -> Tensor:
        if not self._drops(training):
            return weights
        return keras.random.dropout(weights, self.dropout, seed=self.seed_generator)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of the output: that of the queries."""
        return previous_mask

    def compute_output_shape(
        self, queries_shape: Any, keys_shape: Any, values_shape: Any, *, return_attention_scores: bool = False
    ) -> Any:
        """The shape of the output `B + (Tq, Dv)`, and of the weights when asked for."""
        shapes = tuple(queries_shape), tuple(keys_shape), tuple(values_shape)
        self.check_shapes(*shapes)
        scores_shape = scores_shape_of(*shapes)
        output_shape = (*scores_shape[:-1], shapes[2][-1])
        return (output_shape, scores_shape) if return_attention_scores else output_shape

    def compute_output_spec(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Any = None,
        *,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        queries_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
    ) -> Any:
        """The shape and dtype of what `call` returns."""
        masks = Masks(valid_lens, attention_mask, queries_mask, keys_mask, values_mask)
        masks = self._check_call(queries, keys, values, masks)
        output_shape, scores_shape = self.compute_output_shape(
            shape_of(queries), shape_of(keys), shape_of(values), return_attention_scores=True
        )
        output = keras.KerasTensor(output_shape, dtype=self.compute_dtype)
        _carry_mask(output, masks.queries_mask)
        if not return_attention_scores:
            return output
        return output, keras.KerasTensor(scores_shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        config = {**super().get_config(), "dropout": self.dropout, "seed": self.seed}
        policies = policy_with_quantized_sublayers(self)
        return config if policies is None else {**config, "dtype": keras.dtype_policies.serialize(policies)}


def _carry_mask(output: Tensor, queries_mask: Tensor | None) -> None:
    """Lets the output carry a `queries_mask` that was passed explicitly.

    Keras itself passes on only the mask that the first input carries. A JAX array takes no attributes: there the
    output carries that mask alone.
    """
    if queries_mask is not None:
        with contextlib.suppress(AttributeError):
            output._keras_mask = queries_mask
