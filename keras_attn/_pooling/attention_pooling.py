"""AttentionPooling: score, mask, normalize, dropout, weighted sum."""

from functools import partial
from typing import Any

import keras

from .._checks.call_arguments import check_score_result, infer_scores_shape
from .._checks.constructor_arguments import check_dropout, check_seed
from .._keras.replica_seeds import SeedGenerator
from .._maths.masks import has_no_empty_rows, zero_fully_masked, zero_masked_queries
from .._maths.normalizers import SOFTMAX, check_normalizer
from .._shapes import shape_of
from .._types import Pairs, Shape, Tensor
from .attention_call import AttentionCall
from .composite import DROPS, composite_of, current_evaluator
from .pool import pool
from .scoring_layer import ScoringLayer
from .torch_sdpa import can_use_sdpa, sdpa_pool

_CALL_METHODS = (
    "call",
    "_dispatch_call",
    "_attend",
    "_evaluate_composite",
    "precompute",
)  # what a call of a layer is, beside its score


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionPooling(ScoringLayer):
    """Base class of the attention layers: a mean of the values, weighted by a softmax over scores.

    `output = dropout(softmax(score(queries, keys) + score_bias)) values`, with the softmax over the keys that take
    part.

    A subclass defines `score(queries, keys)`, which returns `B + (Tq, Tk)`, and, if it has weights,
    `build(queries_shape, keys_shape, values_shape)`. This class does the masks, softmax, dropout and shapes. If part of
    the score depends on the keys alone, a subclass may define `project_keys(keys)` and `score_projected(queries, keys)`
    instead of `score`.

    Axes: `B` one or more batch axes; `Tq` queries; `Tk` keys; `Dq`, `Dk`, `Dv` sizes of a query, key and value.

    Args:
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the random draws of the dropout, or None.
        normalizer: How the scores of a query become weights: `"softmax"`; `"sparsemax"`, whose weights also sum to 1
            and are exactly zero for keys far below the best; or `"sigmoid"`, which computes each weight by itself, from
            0 to 1.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        queries: Floats, `B + (Tq, Dq)`.
        keys: Floats, `B + (Tk, Dk)`, or the result of `precompute` or `append`.
        values: Floats, `B + (Tk, Dv)`; None if `keys` is a state that holds values.
        valid_lens: Integers, `B` or `B + (Tq,)`. Key `j` takes part if `j < valid_lens`.
        score_bias: Floats that broadcast to `B + (Tq, Tk)`, added to the scores before any mask. They are clipped at
            1e30, in float16 at 65504, of either sign. So an additive mask of -1e9, the lowest number or minus infinity
            works too.
        attention_mask: Booleans that broadcast to `B + (Tq, Tk)`; True takes part.
        segment_ids: Integers: a query sees only keys with its own number, for several texts packed into one sequence.
            `B + (T,)` if queries and keys are the same sequence, else a pair: `B + (Tq,)` and `B + (Tk,)`.
        use_causal_mask: Whether query `i` sees only keys `j <= i`.
        window: (left, right): query `i` sees only keys `i - left <= j <= i + right`; None for no bound on a side.
        offset: Position of the first query, from which a causal mask and a window count: an integer, or integers `B`.
            None for 0; but with a state that holds values, None makes the queries the last of its steps.
        return_attention_scores: Whether to return the weights as well.
        training: Whether dropout acts.
        queries_mask: Booleans, `B + (Tq,)`. Unless given, Keras fills it from the mask that `queries` carries.
        keys_mask: Booleans, `B + (Tk,)`, likewise from `keys`.
        values_mask: Booleans, `B + (Tk,)`, likewise from `values`.

    Returns:
        Output `B + (Tq, Dv)`. With `return_attention_scores=True`, a pair of the output and the weights `B + (Tq, Tk)`,
        taken after the softmax and before the dropout.

    Masking:
        A pair takes part if every given mask allows it. A query with no key has zero weights, zero output and zero
        gradient. Before they are used, zeros replace every key that no query may see, its value, and every query that
        sees no key. So NaN there reaches neither outputs nor gradients. The output carries `queries_mask`.

    Numerics:
        The softmax or other normalizer runs in float32 at least, whatever the dtype of the layer.

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
        has_no_empty_rows_ = has_no_empty_rows(call.masks, call.queries, call.keys.tensor)
        call = call._replace(skip_zeroing=call.skip_zeroing or has_no_empty_rows_)
        can_fuse = not call.returns_weights and not self._applies_dropout(call) and self.normalizer == SOFTMAX
        is_causal = can_fuse and has_no_empty_rows_ and call.pairs == Pairs(causal=True) and call.bias is None
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
        """What an exporter makes of a call, where there is one and it can; else None."""
        evaluate = current_evaluator()
        if evaluate is None:
            return None
        if not self._has_builtin_scoring or self._applies_dropout(call):
            evaluate.reasons[id(self)] = DROPS if self._has_builtin_scoring else "it has a score of its own"
            return None
        if evaluate.hides_masked or self._mask_changes_scoring(call):
            call = self._zero_masked_inputs(call, call.mask())
        scoring = self._scoring(call)
        if scoring.name is None:
            evaluate.reasons[id(self)] = "its score is known by its operations alone"
            return None
        output, weights = evaluate(composite_of(call, scoring, self, self.normalizer), call.returns_weights)
        return zero_masked_queries(call.masks.queries_mask, output, weights)

    def _zero_masked_inputs(self, call: AttentionCall, mask: Tensor | None) -> AttentionCall:
        """The call with zeros for a query that sees no key, and for a key that no query sees."""
        if call.skip_zeroing:
            return call
        queries, keys = zero_fully_masked(mask, call.queries, call.keys.tensor)
        return call._replace(queries=queries, keys=call.keys._replace(tensor=keys))

    def _mask_changes_scoring(self, call: AttentionCall) -> bool:
        """Whether `_zero_masked_inputs` makes more of a call than zeros, so that an exporter needs it too."""
        return False

    @property
    def _adds_only_scoring(self) -> bool:
        """Whether `_scoring` says all that there is to a call of this layer but dropout: a subclass may do more."""
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
