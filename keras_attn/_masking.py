"""Which pairs of query and key take part, and the softmax over those alone."""

from functools import reduce
from typing import Any

import keras
from keras import ops

from ._checks import as_tensor, check_attention_mask, check_scores, check_valid_lens, dtype_of, shape_of
from ._normalizers import softmax_where
from ._placeholders import as_lengths, as_mask
from ._sizes import largest, smallest
from ._types import Masks, Pairs, Tensor, Window


def lengths_mask(valid_lens: Tensor, scores_rank: int, num_keys: Any) -> Tensor:
    """True at key `j < valid_lens`, broadcastable to scores `B + (Tq, Tk)`.

    The rank of the lengths says what they count, never a size: `B` and `Tq` may be equal.

    Args:
        valid_lens: Integers, `B` (for each example) or `B + (Tq,)` (for each query).
        scores_rank: Number of axes of the scores.
        num_keys: Tk, an integer or a scalar tensor.

    Returns:
        Booleans, `B + (1, Tk)` or `B + (Tq, Tk)`.
    """
    for _ in range(scores_rank - len(valid_lens.shape)):
        valid_lens = ops.expand_dims(valid_lens, -1)
    return ops.less(ops.arange(num_keys, dtype="int32"), valid_lens)


def causal_mask(num_queries: Any, num_keys: Any) -> Tensor:
    """True where query `i` may see key `j <= i`: booleans (Tq, Tk), aligned at the upper left."""
    return ops.less_equal(
        ops.arange(num_keys, dtype="int32"), ops.expand_dims(ops.arange(num_queries, dtype="int32"), -1)
    )


def window_mask(num_queries: Any, num_keys: Any, window: Window) -> Tensor | None:
    """True where query `i` may see key `j`, for `i - left <= j <= i + right`; None where the window has no bound.

    Args:
        num_queries: Tq, an integer or a scalar tensor.
        num_keys: Tk, likewise.
        window: (left, right), each an integer or None for no bound.

    Returns:
        Booleans (Tq, Tk).
    """
    left, right = window
    gaps = ops.arange(num_keys, dtype="int32") - ops.expand_dims(ops.arange(num_queries, dtype="int32"), -1)
    return intersect(
        None if left is None else ops.greater_equal(gaps, -left), None if right is None else ops.less_equal(gaps, right)
    )


def range_of_keys(pairs: Pairs, start: Any, stop: Any, num_keys: Any) -> tuple[Any, Any]:
    """The first key that some query `start <= i < stop` may see by the order of positions, and the one behind the last.

    There is always a key between them, the last one if none is seen.

    Args:
        pairs: Whether query `i` sees only keys `j <= i`, and its window.
        start: Of the queries, an integer or a scalar tensor.
        stop: Likewise.
        num_keys: Tk, likewise.
    """
    left, right = pairs.window or (None, None)
    if pairs.causal:
        right = 0  # a window's own is at least that
    behind = num_keys if right is None else smallest(stop + right, num_keys)
    return 0 if left is None else smallest(largest(start - left, 0), largest(behind - 1, 0)), behind


def intersect(*masks: Tensor | None) -> Tensor | None:
    """The pairs that every given mask lets take part; None when no mask is given."""
    given = [mask for mask in masks if mask is not None]
    return reduce(ops.logical_and, given) if given else None


def combine_masks(masks: Masks, pairs: Pairs, num_queries: Any, num_keys: Any, scores_rank: int) -> Tensor | None:
    """The pairs of query and key that every mask lets take part, or None when there is no mask.

    Args:
        masks: Lengths and masks, each checked.
        pairs: Whether query `i` sees only keys `j <= i`, and its window.
        num_queries: Tq, an integer or a scalar tensor.
        num_keys: Tk, likewise.
        scores_rank: Number of axes of the scores.

    Returns:
        Booleans of at least 2 axes that broadcast to `B + (Tq, Tk)`. While all masks speak of keys alone, the query
        axis keeps size 1: no mask of all pairs is made before one is needed.
    """
    lengths, attention_mask, queries_mask, keys_mask, values_mask = masks
    keys_mask = intersect(keys_mask, values_mask)
    mask = intersect(
        None if lengths is None else lengths_mask(lengths, scores_rank, num_keys),
        None if keys_mask is None else ops.expand_dims(keys_mask, -2),
        attention_mask,
        causal_mask(num_queries, num_keys) if pairs.causal else None,
        None if pairs.window is None else window_mask(num_queries, num_keys, pairs.window),
        None if queries_mask is None else ops.expand_dims(queries_mask, -1),
    )
    while mask is not None and len(mask.shape) < 2:
        mask = ops.expand_dims(mask, 0)
    return mask


def each_sees_itself(masks: Masks, queries: Tensor, keys: Tensor) -> bool:
    """Whether no query can be without a key and no key without a query, as far as is known without looking.

    The order of positions, in a causal mask or a window, never hides a position from itself.

    Args:
        masks: All that the call was given.
        queries: `B + (Tq, ...)`.
        keys: `B + (Tk, ...)`.
    """
    num_queries = queries.shape[-2]
    return all(mask is None for mask in masks) and num_queries is not None and num_queries == keys.shape[-2]


def split_lengths(masks: Masks, scores_rank: int) -> tuple[Tensor | None, Masks]:
    """The lengths, if there is one for each example, and all other masks."""
    lengths = masks.valid_lens
    if lengths is None or len(lengths.shape) != scores_rank - 2:
        return None, masks
    return lengths, masks._replace(valid_lens=None)


def hide(positions: Tensor, visible: Tensor) -> Tensor:
    """Zeros where a position is not visible.

    A selection, not a product: zero times NaN is NaN, and a selection stops gradients too.

    Args:
        positions: Features, `B + (T, D)`.
        visible: Booleans that broadcast to `B + (T,)`.
    """
    return ops.where(ops.expand_dims(visible, -1), positions, 0.0)


def hide_rows(queries_mask: Tensor | None, output: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Zeros in output `B + (Tq, D)` and weights `B + (Tq, Tk)`, if there are any, of queries that are masked."""
    if queries_mask is None:
        return output, weights
    return hide(output, queries_mask), None if weights is None else hide(weights, queries_mask)


def hide_unseen(mask: Tensor | None, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Zeros for queries `B + (Tq, Dq)` that see no key, and for keys `B + (Tk, Dk)` that no query sees."""
    if mask is None:
        return queries, keys
    return hide(queries, ops.any(mask, axis=-1)), hide(keys, ops.any(mask, axis=-2))


def mean_seen_by_all(mask: Tensor | None, keys: Tensor) -> Tensor:
    """Mean of the keys that every query sees, `B + (1, D)`; zeros where there is none.

    Queries that see no key have no say. No other key has a part in the mean, so it tells a query nothing of keys that
    it does not see.

    Args:
        mask: Booleans of at least 2 axes that broadcast to `B + (Tq, Tk)`, or None.
        keys: `B + (Tk, D)`.
    """
    counted = ops.ones_like(keys[..., :1])
    if mask is not None:
        sees_none = ops.logical_not(ops.any(mask, axis=-1, keepdims=True))
        seen_by_all = ops.all(ops.logical_or(mask, sees_none), axis=-2)
        keys, counted = hide(keys, seen_by_all), hide(counted, seen_by_all)
    number = ops.maximum(ops.sum(counted, axis=-2, keepdims=True), 1.0)
    return ops.sum(keys, axis=-2, keepdims=True) / number


def masked_softmax(scores: Tensor, valid_lens: Any = None, *, mask: Any = None) -> Tensor:
    """Softmax over the keys that take part.

    `weights[j] = exp(scores[j]) / sum(exp(scores[i]) for each i that takes part)`, and zero where `j` does not.

    Args:
        scores: Floats, `(..., Tq, Tk)`.
        valid_lens: Integers, `(...)` or `(..., Tq)`. Key `j` takes part if `j < valid_lens`. None for all keys.
        mask: Booleans that broadcast to the scores; True takes part. Intersected with the lengths.

    Returns:
        Weights of the shape and dtype of the scores. Each row sums to 1, or is zero when it has no key.

    Numerics:
        Computed in float32 at least. A score must be above the lowest float32 to count against the masked ones.

    Raises:
        TypeError: If scores are not floats, lengths not integers, or the mask not boolean.
        ValueError: If shapes do not agree.

    Example:
        >>> masked_softmax(keras.ops.zeros((2, 1, 4)), [1, 2])
        [[[1., 0., 0., 0.]], [[0.5, 0.5, 0., 0.]]]

    Source: Zhang, Lipton, Li and Smola, Dive into Deep Learning, section 11.3, where masked scores are set to -1e6;
        there a row without keys comes out uniform, here it is zero.
    """
    if any(isinstance(x, keras.KerasTensor) for x in (scores, valid_lens, mask)):
        # In a functional model the whole becomes one layer: Tk may be unknown here, and is known when the layer runs.
        return MaskedSoftmax(dtype=dtype_of(scores))(scores, valid_lens, attention_mask=mask)
    scores = as_tensor(scores)
    return _softmax_of(scores, *check_softmax_inputs(scores, valid_lens, mask, mask_name="mask"))


def _softmax_of(scores: Tensor, valid_lens: Tensor | None, mask: Tensor | None) -> Tensor:
    if valid_lens is not None:
        valid_lens = lengths_mask(valid_lens, len(scores.shape), ops.shape(scores)[-1])
    return softmax_where(scores, intersect(valid_lens, mask))


def check_softmax_inputs(
    scores: Tensor, valid_lens: Any, mask: Any, *, mask_name: str
) -> tuple[Tensor | None, Tensor | None]:
    """Checks what a masked softmax receives; returns lengths and mask as tensors."""
    check_scores(scores)
    if valid_lens is not None:
        valid_lens = as_lengths(valid_lens)
        check_valid_lens(valid_lens, shape_of(scores))
    if mask is not None:
        mask = as_mask(mask)
        check_attention_mask(mask_name, mask, shape_of(scores))
    return valid_lens, mask


@keras.saving.register_keras_serializable(package="keras_attn")
class MaskedSoftmax(keras.layers.Layer):
    """Softmax over the keys that take part, as a layer: see `masked_softmax`.

    Call arguments:
        scores: Floats, `(..., Tq, Tk)`.
        valid_lens: Integers, `(...)` or `(..., Tq)`. Key `j` takes part if `j < valid_lens`.
        attention_mask: Booleans that broadcast to the scores; True takes part.

    Returns:
        Weights of the shape of the scores, exactly zero where masked.

    Masking:
        Lengths and mask are intersected. A Keras mask on the scores is passed on unchanged.

    Example:
        >>> scores, lens = keras.Input((3, 4)), keras.Input((), dtype="int32")
        >>> model = keras.Model([scores, lens], MaskedSoftmax()(scores, lens))
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, scores_shape: Any) -> None:
        """Makes no weights."""

    def call(self, scores: Tensor, valid_lens: Any = None, *, attention_mask: Any = None) -> Tensor:
        """Computes the weights."""
        checked = check_softmax_inputs(scores, valid_lens, attention_mask, mask_name="attention_mask")
        return _softmax_of(scores, *checked)

    def compute_output_spec(self, scores: Tensor, valid_lens: Any = None, *, attention_mask: Any = None) -> Tensor:
        """The shape and dtype of the weights."""
        check_softmax_inputs(scores, valid_lens, attention_mask, mask_name="attention_mask")
        return keras.KerasTensor(shape_of(scores), dtype=self.compute_dtype)

    def compute_output_shape(self, scores_shape: Any) -> Any:
        """The shape of the weights: that of the scores."""
        return scores_shape
