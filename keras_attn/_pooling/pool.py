"""Plain evaluation of attention: scores, weights, weighted sum."""

from collections.abc import Callable

from keras import ops

from .._maths.head_masks import add_head_axis
from .._maths.heads import join_heads, repeat_heads, split_heads
from .._maths.masks import combine_masks, zero_masked
from .._maths.normalizers import NORMALIZERS, SOFTMAX
from .._shapes import at_least_float32, dtype_of
from .._types import BandMask, Heads, Masks, Tensor


def pool(
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,
    drop: Callable[[Tensor], Tensor] | None = None,
    normalizer: str = SOFTMAX,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the weighted sum, `B + (Tq, Dv)`, and the weights before `drop`, `B + (Tq, Tk)`, in the dtype of values.

    Scores are `B + (Tq, Tk)`, values `B + (Tk, Dv)`, arbitrary if fully masked. The mask (booleans, 2 axes or more) and
    the bias (floats, added in float32 at least) broadcast to the scores. `drop` applies dropout to the weights.
    """
    if bias is not None:
        scores = at_least_float32(scores) + at_least_float32(bias)
    weights = ops.cast(NORMALIZERS[normalizer](scores, mask), dtype_of(values))
    if mask is not None:
        values = zero_masked(values, ops.any(mask, axis=-2))
    output = ops.matmul(weights if drop is None else drop(weights), values)
    # On torch `keras.ops.matmul` returns float32 for float64.
    return ops.cast(output, dtype_of(values)), weights


def evaluate_plain(
    score: Callable[..., Tensor],
    heads: Heads | None,
    band: BandMask,
    normalizer: str,
    *,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Tensor | None = None,
    keys_mask: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    **score_weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """Evaluate a composite by plain operations; tensors and results have the shapes in `Composite`."""
    masks, rank = Masks(valid_lens, mask, keys_mask=keys_mask), len(values.shape)
    if heads is not None:
        masks = add_head_axis(masks, rank)
        queries = split_heads(queries, heads.num_query_heads)
        repeats = heads.num_query_heads // heads.num_kv_heads
        keys, values = (repeat_heads(split_heads(tensor, heads.num_kv_heads), repeats) for tensor in (keys, values))
    mask = combine_masks(masks, band, ops.shape(queries)[-2], ops.shape(keys)[-2], len(values.shape))
    scores = score(queries=queries, keys=keys, **score_weights)
    output, weights = pool(scores, values, mask, normalizer=normalizer, bias=bias)
    return output if heads is None else join_heads(output), weights
