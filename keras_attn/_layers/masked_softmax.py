"""Masked softmax as a function and as a layer."""

from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import check_attention_mask, check_scores, check_valid_lens
from .._keras.build_placeholders import convert_lengths, convert_mask
from .._keras.call_errors import CallErrorMixin
from .._maths.masks import intersect, lengths_mask
from .._maths.normalizers import softmax_where
from .._shapes import as_tensor, clip_to_int32, dtype_of, shape_of
from .._types import Tensor


def masked_softmax(scores: Tensor, valid_lens: Any = None, *, mask: Any = None) -> Tensor:
    """Compute the softmax of attention scores over unmasked keys.

    `weights[j] = exp(scores[j]) / sum(exp(scores[i]) for unmasked i)` for unmasked keys `j`, and 0 for masked keys.

    Args:
        scores: Floats, `(..., Tq, Tk)`.
        valid_lens: Valid lengths, integers `(...)` or `(..., Tq)`; keys `j >= valid_lens` are masked. None: no limit.
        mask: Booleans that broadcast to the scores; False for masked keys, in addition to `valid_lens`.

    Returns:
        Weights of the shape and dtype of the scores. Each row sums to 1, or is zero if all keys are masked.

    Numerics:
        Computed in float32 at least. A score must be above the lowest float32, the fill value of masked scores.

    Raises:
        TypeError: If scores are not floats, lengths not integers, or the mask not boolean.
        ValueError: If shapes do not agree.

    Example:
        >>> masked_softmax(keras.ops.zeros((2, 1, 4)), [1, 2])
        [[[1., 0., 0., 0.]], [[0.5, 0.5, 0., 0.]]]

    Source: Zhang, Lipton, Li and Smola, Dive into Deep Learning, section 11.3. There masked scores are set to -1e6, and
        fully masked rows get uniform weights; here they get zeros.
    """
    if any(isinstance(argument, keras.KerasTensor) for argument in (scores, valid_lens, mask)):
        # In a functional model this becomes one layer, since Tk may be unknown until the layer runs.
        return MaskedSoftmax(dtype=dtype_of(scores))(scores, valid_lens, attention_mask=mask)
    scores = as_tensor(scores)
    return _normalize_scores(scores, *check_softmax_inputs(scores, valid_lens, mask, mask_name="mask"))


def _normalize_scores(scores: Tensor, valid_lens: Tensor | None, mask: Tensor | None) -> Tensor:
    """Return the masked softmax of validated scores `(..., Tq, Tk)`."""
    if valid_lens is not None:
        valid_lens = lengths_mask(valid_lens, len(scores.shape), ops.shape(scores)[-1])
    return softmax_where(scores, intersect(valid_lens, mask))


def check_softmax_inputs(
    scores: Tensor, valid_lens: Any, mask: Any, *, mask_name: str
) -> tuple[Tensor | None, Tensor | None]:
    """Validate the arguments of a masked softmax; return lengths and mask as tensors or None."""
    check_scores(scores)
    if valid_lens is not None:
        valid_lens = convert_lengths(clip_to_int32(valid_lens))
        check_valid_lens(valid_lens, shape_of(scores))
    if mask is not None:
        mask = convert_mask(mask)
        check_attention_mask(mask_name, mask, shape_of(scores))
    return valid_lens, mask


@keras.saving.register_keras_serializable(package="keras_attn")
class MaskedSoftmax(CallErrorMixin, keras.layers.Layer):
    """Softmax over unmasked keys, as a layer; see `masked_softmax`.

    Call arguments, Returns, Numerics, Raises: those of `masked_softmax`, with `attention_mask` for its `mask`.

    Masking:
        An implicit Keras mask of the scores is propagated unchanged.

    Example:
        >>> scores, lens = keras.Input((3, 4)), keras.Input((), dtype="int32")
        >>> model = keras.Model([scores, lens], MaskedSoftmax()(scores, lens))
    """

    CALL_EXAMPLE = "`layer(scores, valid_lens)`"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, scores_shape: Any) -> None:
        """Create no weights."""

    def call(self, scores: Tensor, valid_lens: Any = None, *, attention_mask: Any = None) -> Tensor:
        masks = check_softmax_inputs(scores, valid_lens, attention_mask, mask_name="attention_mask")
        return _normalize_scores(scores, *masks)

    def compute_output_spec(self, scores: Tensor, valid_lens: Any = None, *, attention_mask: Any = None) -> Tensor:
        check_softmax_inputs(scores, valid_lens, attention_mask, mask_name="attention_mask")
        return keras.KerasTensor(shape_of(scores), dtype=self.compute_dtype)

    def compute_output_shape(self, scores_shape: Any) -> Any:
        return scores_shape
