"""AttentionPooling: score, mask, normalize, dropout, weighted sum."""

from functools import partial
from typing import Any

import keras

from .._checks.call_arguments import check_score_result, infer_scores_shape
from .._checks.constructor_arguments import check_dropout, check_seed
from .._keras.replica_seeds import SeedGenerator
from .._maths.masks import all_rows_visible, zero_fully_masked, zero_masked_queries
from .._maths.normalizers import SOFTMAX, check_normalizer
from .._shapes import shape_of
from .._types import BandMask, Shape, Tensor
from .attention_call import AttentionCall
from .composite import DROPOUT_REASON, current_evaluator, make_composite
from .pool import pool
from .scoring_layer import ScoringLayer
from .torch_sdpa import can_use_sdpa, sdpa_pool

# Methods of a call, except those that define the score.
_CALL_METHODS = ("call", "_call_or_infer_spec", "_attend", "_evaluate_composite", "precompute")


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionPooling(ScoringLayer):
    """Base class of the attention layers: a mean of the values, weighted by a softmax over scores.

    `output = dropout(softmax(score(queries, keys) + score_bias)) values`, with the softmax over the unmasked keys.

    A subclass defines `score(queries, keys)`, which returns `B + (Tq, Tk)`, and, if it has weights,
    `build(queries_shape, keys_shape, values_shape)`. This class computes masks, softmax, dropout and shapes. If part of
    the score depends on the keys alone, a subclass may define `project_keys(keys)` and `score_projected(queries, keys)`
    instead of `score`.

    Axes: `B` one or more batch axes; `Tq` queries; `Tk` keys; `Dq`, `Dk`, `Dv` sizes of a query, key and value.

    Args:
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the random draws of the dropout, or None.
        normalizer: Function from the scores of a query to weights: `"softmax"`; `"sparsemax"`, whose weights also sum
            to 1 and are exactly zero for low scores; or `"sigmoid"`, with independent weights from 0 to 1.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        queries: Floats, `B + (Tq, Dq)`.
        keys: Floats, `B + (Tk, Dk)`, or the result of `precompute` or `append`.
        values: Floats, `B + (Tk, Dv)`; None if `keys` is a key/value cache with values.
        valid_lens: Valid lengths, integers `B` or `B + (Tq,)`. Keys `j >= valid_lens` are masked.
        score_bias: Floats that broadcast to `B + (Tq, Tk)`, added to the scores before any mask. Absolute values are
            clipped at 1e30, in float16 at 65504. So an additive mask of -1e9, the lowest float or minus infinity works.
        attention_mask: Booleans that broadcast to `B + (Tq, Tk)`; False for masked pairs.
        segment_ids: Integers; a key is masked for queries with another id, for texts packed into one sequence.
            `B + (T,)` if queries and keys are the same sequence, else a pair: `B + (Tq,)` and `B + (Tk,)`.
        use_causal_mask: True to mask keys `j > i` for query `i`.
        window: (left, right): all keys but `i - left <= j <= i + right` are masked for query `i`; None for no bound.
        offset: Position of the first query, for causal mask and window: an integer, or integers `B`. None for 0; with a
            cache of keys and values, None for the last positions of the cache.
        return_attention_scores: True to return the weights as well.
        training: True to apply dropout.
        queries_mask: Booleans, `B + (Tq,)`; by default the implicit Keras mask of `queries`.
        keys_mask: Booleans, `B + (Tk,)`; by default the implicit Keras mask of `keys`.
        values_mask: Booleans, `B + (Tk,)`; by default the implicit Keras mask of `values`.

    Returns:
        Output `B + (Tq, Dv)`. With `return_attention_scores=True`, a pair of the output and the weights `B + (Tq, Tk)`,
        taken after the softmax and before the dropout.

    Masking:
        A pair is unmasked if every mask is True for it. A fully masked query has zero weights, zero output and zero
        gradient. Fully masked queries, keys and their values are replaced by zeros before use, so NaN in them reaches
        neither outputs nor gradients. The implicit mask of the output is `queries_mask`.

    Numerics:
        The softmax or other normalizer runs in float32 at least, for any dtype of the layer.

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

    def __init__(
        self, dropout: float = 0.0, *, seed: int | None = None, normalizer: str = SOFTMAX, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = check_dropout(dropout)
        self.seed = check_seed(seed)
        self.normalizer = check_normalizer(normalizer)
        self.seed_generator = SeedGenerator(self.seed) if self.dropout else None

    def _attend(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        lowered = self._evaluate_composite(call)
        if lowered is not None:
            return lowered
        never_fully_masked = all_rows_visible(call.masks, call.queries, call.keys.tensor)
        call = call._replace(skip_zeroing=call.skip_zeroing or never_fully_masked)
        can_fuse = not call.returns_weights and not self._applies_dropout(call) and self.normalizer == SOFTMAX
        is_causal = can_fuse and never_fully_masked and call.band == BandMask(causal=True) and call.bias is None
        mask = None if is_causal and not self._mask_changes_scoring(call) else call.mask()
        call = self._zero_masked_inputs(call, mask)
        scoring = self._scoring(call) if self._has_builtin_scoring else self._scoring_by_methods(call)
        if can_fuse and can_use_sdpa(scoring, call.values):
            return sdpa_pool(scoring, call, None if is_causal else mask, causal=is_causal), None
        mask = call.mask() if is_causal else mask
        scores = scoring.scores()
        scores_shape = (*shape_of(call.queries)[:-1], shape_of(call.keys.tensor)[-2])
        check_score_result(type(self).__name__, shape_of(scores), scores_shape)
        return pool(scores, call.values, mask, partial(self._drop_weights, call), self.normalizer, call.bias)

    def _evaluate_composite(self, call: AttentionCall) -> tuple[Tensor, Tensor | None] | None:
        """Return output and weights from the evaluator of an exporter; None without an evaluator or composite."""
        evaluate = current_evaluator()
        if evaluate is None:
            return None
        if not self._has_builtin_scoring or self._applies_dropout(call):
            evaluate.reasons[id(self)] = DROPOUT_REASON if self._has_builtin_scoring else "it has a score of its own"
            return None
        if evaluate.needs_zeroed_padding or self._mask_changes_scoring(call):
            call = self._zero_masked_inputs(call, call.mask())
        scoring = self._scoring(call)
        if scoring.name is None:
            evaluate.reasons[id(self)] = "its score is not one of the named scoring functions"
            return None
        output, weights = evaluate(make_composite(call, scoring, self, self.normalizer), call.returns_weights)
        return zero_masked_queries(call.masks.queries_mask, output, weights)

    def _zero_masked_inputs(self, call: AttentionCall, mask: Tensor | None) -> AttentionCall:
        """Zero fully masked queries and keys; the mask has at least 2 axes and broadcasts to `B + (Tq, Tk)`."""
        if call.skip_zeroing:
            return call
        queries, keys = zero_fully_masked(mask, call.queries, call.keys.tensor)
        return call._replace(queries=queries, keys=call.keys._replace(tensor=keys))

    def _mask_changes_scoring(self, call: AttentionCall) -> bool:
        """Return True if `_zero_masked_inputs` also prepares the scoring, so that an exporter must call it."""
        return False

    @property
    def _adds_only_scoring(self) -> bool:
        """True unless a subclass overrides a method of the call or the score of a layer of this package."""
        is_call = all(getattr(type(self), name) is getattr(AttentionPooling, name) for name in _CALL_METHODS)
        return is_call and self._has_builtin_scoring

    def _output_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> tuple[Shape, Shape]:
        scores_shape = infer_scores_shape(queries_shape, keys_shape, values_shape)
        return (*scores_shape[:-1], values_shape[-1]), scores_shape

    def _applies_dropout(self, call: AttentionCall) -> bool:
        return bool(call.training) and self.seed_generator is not None

    def _drop_weights(self, call: AttentionCall, weights: Tensor) -> Tensor:
        if not self._applies_dropout(call):
            return weights
        return keras.random.dropout(weights, self.dropout, seed=self.seed_generator)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed, "normalizer": self.normalizer}
