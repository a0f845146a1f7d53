"""Attention pooling: score, mask, normalize, dropout, weighted sum."""

from functools import partial
from typing import Any

import keras
from keras import ops

from .._checks.arguments import check_dropout, check_seed
from .._checks.tensors import check_given, check_pooling_shapes, check_score_result, scores_shape_of
from .._keras.seeds import SeedGenerator
from .._maths.masks import combine_masks, each_sees_itself, hide, hide_rows, hide_unseen
from .._maths.normalizers import SOFTMAX, check_normalizer
from .._states.state import Keys, check_projected, refuse_state
from .._tensors import Masks, Pairs, Shape, Tensor, shape_of
from .composite import Heads, Scoring, composite_of, current_evaluator, pool
from .fused import fused_pool, hide_all_unseen, is_faster, is_masked_harmless
from .layer import AttentionLayer

_CALL = ("call", "_attend", "_pooled", "_lowered", "precompute")  # what a call of a layer is, beside its score


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionPooling(AttentionLayer):
    """Base of the attention layers: a weighted mean of the values, weights by a softmax over scores.

    `output = dropout(softmax(score(queries, keys) + score_bias)) values`, the softmax over the keys that take part.

    A subclass gives `score(queries, keys)`, which returns `B + (Tq, Tk)`, and where it has weights
    `build(queries_shape, keys_shape, values_shape)`. Masks, softmax, dropout and shapes are done here. Where part of
    the score depends on keys alone, it may split it in `project_keys(keys)` and `score_projected(queries, keys)`.

    Axes: `B` one or more batch axes, `Tq` queries, `Tk` keys, `Dq`, `Dk`, `Dv` sizes.

    Args:
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the draws of the dropout, or None.
        normalizer: What makes weights of the scores of a query: `"softmax"`; `"sparsemax"`, whose weights sum to 1 too
            and are exactly zero for keys far from the best; or `"sigmoid"`, each weight for itself, from 0 to 1.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        queries: Floats, `B + (Tq, Dq)`.
        keys: Floats, `B + (Tk, Dk)`, or what `precompute` or `append` gave.
        values: Floats, `B + (Tk, Dv)`; None where `keys` is a state that holds values.
        valid_lens: Integers, `B` or `B + (Tq,)`. Key `j` takes part if `j < valid_lens`.
        score_bias: Floats that broadcast to `B + (Tq, Tk)`, added to the scores before any mask. What lies beyond 1e30,
            in float16 65504, counts as that, so that a mask of -1e9, the lowest number or infinity can be added.
        attention_mask: Booleans that broadcast to `B + (Tq, Tk)`; True takes part.
        use_causal_mask: Whether query `i` sees only keys `j <= i`.
        window: (left, right): query `i` sees only keys `i - left <= j <= i + right`; None for no bound on a side.
        offset: Position of the first query, from which a causal mask and a window count: an integer, or integers `B`.
            None for 0; with a state that holds values, the queries are the last of its steps.
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
        The softmax, or what is in its place, runs in float32 at least, whatever the dtype of the layer.

    Raises:
        TypeError: If lengths are not integers or a mask is not boolean.
        ValueError: If ranks or sizes do not agree.

    Source: sparsemax: Martins and Astudillo 2016; sigmoid: Ramapuram et al. 2024, there with a bias of `-log(Tk)`.

    Example:
        >>> class NegativeDistance(AttentionPooling):
        ...     def score(self, queries, keys):
        ...         gaps = keras.ops.expand_dims(queries, -2) - keras.ops.expand_dims(keys, -3)
        ...         return -0.5 * keras.ops.sum(gaps**2, -1)
    """

    _scores_in_parts = True  # whether `score` is made of its two parts: a subclass may override the whole alone
    _score_is_described = True  # whether `_scoring` speaks of this score: a subclass may override the score alone
    _scores_by_products = False  # whether scores are scaled dot products, of which `_scoring` speaks, and nothing else

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parts = _definer_of(cls, "score_projected", "project_keys")
        score = _definer_of(cls, "score", "score_projected", "project_keys")
        cls._scores_in_parts = score is parts
        cls._score_is_described = score is _definer_of(cls, "_scoring")

    def __init__(
        self, dropout: float = 0.0, *, seed: int | None = None, normalizer: str = SOFTMAX, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = check_dropout(dropout)
        self.seed = check_seed(seed)
        self.normalizer = check_normalizer(normalizer)
        self.seed_generator = SeedGenerator(self.seed) if self.dropout else None

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Checks the shapes; a subclass makes its weights here."""
        refuse_state(keys_shape)
        check_given(keys=keys_shape, values=values_shape)  # Keras leaves out the shape of what is None
        self.check_shapes(tuple(queries_shape), tuple(keys_shape), tuple(values_shape))

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores each query against each key: `B + (Tq, Dq)` and `B + (Tk, Dk)` to `B + (Tq, Tk)`."""
        if type(self).score_projected is AttentionPooling.score_projected:
            raise NotImplementedError(f"{type(self).__name__} must define `score(queries, keys)`.")
        return self.score_projected(queries, self.project_keys(keys))

    def project_keys(self, keys: Tensor) -> Tensor:
        """What of the score depends on keys `B + (Tk, Dk)` alone: `B + (Tk, ...)`, the keys themselves unless given."""
        return keys

    def score_projected(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores queries `B + (Tq, Dq)` against keys as `project_keys` returns them: `B + (Tq, Tk)`."""
        return self.score(queries, keys)

    def projected_size(self, queries_size: int | None) -> int | None:
        """The size of projected keys for queries of size Dq; None where it is unknown or any will do."""
        return None

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raises ValueError when shapes do not agree; a subclass may add rules of its own."""
        check_pooling_shapes(queries_shape, keys_shape, values_shape)

    def _attend(
        self,
        queries: Tensor,
        keys: Keys,
        values: Tensor,
        masks: Masks,
        pairs: Pairs,
        *,
        offset: Any,
        bias: Tensor | None,
        return_attention_scores: bool,
        training: bool | None,
    ) -> tuple[Tensor, Tensor | None]:
        lowered = self._lowered(queries, keys, values, masks, pairs, bias, return_attention_scores, training)
        if lowered is not None:
            return lowered
        mask = _mask_of(masks, pairs, queries, keys)
        if not return_attention_scores and self.normalizer == SOFTMAX and self._can_be_lowered(training):
            output = self._fused(queries, keys, values, masks, pairs, mask, bias)
            if output is not None:
                return output, None
        queries, keys = self._without_unseen(mask, queries, keys)
        return self._pooled(queries, keys, values, mask, pairs, bias, training)

    def _pooled(
        self,
        queries: Tensor,
        keys: Keys,
        values: Tensor,
        mask: Tensor | None,
        pairs: Pairs,
        bias: Tensor | None,
        training: bool | None,
    ) -> tuple[Tensor, Tensor]:
        """The output and the weights, from queries and keys without those that are unseen."""
        scores = self._scores(queries, keys, pairs)
        check_score_result(type(self).__name__, shape_of(scores), (*shape_of(queries)[:-1], shape_of(keys.tensor)[-2]))
        return pool(scores, values, mask, partial(self._drop, training=training), self.normalizer, bias)

    def _fused(
        self,
        queries: Tensor,
        keys: Keys,
        values: Tensor,
        masks: Masks,
        pairs: Pairs,
        mask: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor | None:
        """The output in one operation of the backend; None where that is not faster, or the layer has no such form."""
        if not self._scores_by_products or not is_faster(queries, values):
            return None
        no_row_is_empty, tensor = each_sees_itself(masks, queries, keys.tensor), keys.tensor
        harmless = no_row_is_empty or is_masked_harmless(self)
        if not harmless:
            queries, tensor, values = hide_all_unseen(mask, queries, tensor, values)
        scoring = self._scoring(queries, keys._replace(tensor=tensor))
        if scoring is None:
            return None
        causal = no_row_is_empty and pairs == Pairs(causal=True) and bias is None
        read = {**scoring.tensors, "values": values, "mask": None if causal else mask, "bias": bias}
        return fused_pool(**read, **scoring.options, causal=causal, zeros=not harmless)

    def _without_unseen(self, mask: Tensor | None, queries: Tensor, keys: Keys) -> tuple[Tensor, Keys]:
        """What is scored: zeros for a query that sees no key, and for a key that no query sees."""
        queries, tensor = hide_unseen(mask, queries, keys.tensor)
        return queries, keys._replace(tensor=tensor)

    def _centres_keys(self, queries: Tensor) -> bool:
        """Whether `_without_unseen` makes more of the keys than zeros, so that an exporter needs it too."""
        return False

    def _project(self, keys: Tensor, offset: Any) -> Tensor:
        return self.project_keys(keys) if self._scores_in_parts else keys

    def _score_projection(self, queries: Tensor, keys: Tensor) -> Tensor:
        return (self.score_projected if self._scores_in_parts else self.score)(queries, keys)

    def _scores(self, queries: Tensor, keys: Keys, pairs: Pairs) -> Tensor:
        """Scores `B + (Tq, Tk)`; those of pairs that do not take part by their order may be any numbers."""
        return (self._score_projection if keys.projected else self.score)(queries, keys.tensor)

    def _lowered(
        self,
        queries: Tensor,
        keys: Keys,
        values: Tensor,
        masks: Masks,
        pairs: Pairs,
        bias: Tensor | None,
        returns_weights: bool,
        training: bool | None,
    ) -> tuple[Tensor, Tensor | None] | None:
        """What an exporter makes of a call, where there is one and it can; else None."""
        evaluate = current_evaluator()
        if evaluate is None or not self._can_be_lowered(training):
            return None
        if evaluate.hides_unseen or self._centres_keys(queries):
            queries, keys = self._without_unseen(_mask_of(masks, pairs, queries, keys), queries, keys)
        if masks.queries_mask is not None and not self._scores_by_products:
            queries = hide(queries, masks.queries_mask)  # the form of other scores hangs on how large all queries are
        scoring = self._scoring(queries, keys)
        if scoring is None:
            return None
        composite = composite_of(scoring, values, masks, pairs, self, normalizer=self.normalizer, bias=bias)
        output, weights = evaluate(composite, returns_weights)
        return hide_rows(masks.queries_mask, output, weights)

    @property
    def _only_scores(self) -> bool:
        """Whether a call of this layer is that of `AttentionPooling`, whatever its score: a subclass may do more."""
        return all(getattr(type(self), name) is getattr(AttentionPooling, name) for name in _CALL)

    def _can_be_lowered(self, training: bool | None) -> bool:
        """Whether `_scoring` says all that there is to a call."""
        return self._score_is_described and not self._drops(training)

    def _scoring(self, queries: Tensor, keys: Keys) -> Scoring | None:
        """What an exporter may write in its own way, or None: it then gets the ops that `score` is made of.

        Args:
            queries: `B + (Tq, Dq)`; they may hold anything where they are masked.
            keys: `B + (Tk, Dk)`, likewise; or projected.
        """
        return None

    def _scoring_of_heads(self, queries: Tensor, keys: Tensor, heads: Heads) -> Scoring | None:
        """The scoring of one head, with the tensors of all heads side by side; None where there is none.

        Args:
            queries: `B + (Tq, H D)`; they may hold anything where they are masked.
            keys: `B + (Tk, G D)`, likewise.
            heads: H and G.
        """
        return None

    def _checked_shapes(self, queries_shape: Shape, keys: Keys, values_shape: Shape) -> tuple[Shape, Shape, Shape]:
        shapes = queries_shape, keys.tensor, values_shape
        if keys.projected:
            check_pooling_shapes(*shapes)
            check_projected(keys.tensor, self.projected_size(queries_shape[-1]) if self._scores_in_parts else None)
        else:
            self.check_shapes(*shapes)
        return shapes

    def _output_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> tuple[Shape, Shape]:
        scores_shape = scores_shape_of(queries_shape, keys_shape, values_shape)
        return (*scores_shape[:-1], values_shape[-1]), scores_shape

    def _drops(self, training: bool | None) -> bool:
        return bool(training) and self.seed_generator is not None

    def _drop(self, weights: Tensor, training: bool | None) -> Tensor:
        if not self._drops(training):
            return weights
        return keras.random.dropout(weights, self.dropout, seed=self.seed_generator)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed, "normalizer": self.normalizer}


def _definer_of(cls: type, *names: str) -> type:
    """The most derived class that defines one of these methods."""
    return next(each for each in cls.__mro__ if any(name in vars(each) for name in names))


def _mask_of(masks: Masks, pairs: Pairs, queries: Tensor, keys: Keys) -> Tensor | None:
    """The pairs of query and key that every mask lets take part, or None when there is no mask."""
    return combine_masks(masks, pairs, ops.shape(queries)[-2], ops.shape(keys.tensor)[-2], len(queries.shape))
