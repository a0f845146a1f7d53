"""Score functions: additive, dot product, Gaussian and cosine."""

from collections.abc import Callable

import numpy as np
from keras import ops

from .._shapes import at_least_float32, dtype_of, fast_reshape
from .._types import Tensor

# Up to this D vectors are treated as coordinates (years, metres), whose distances may be small compared with their
# norms, so that an expanded distance would lose digits. A larger limit costs memory for `B Tq Tk D` differences.
MAX_EXACT_AXES = 8

# Larger than any score, and small enough that sums over keys stay below 3.4e38, the largest float32.
MAX_ABS_BIAS = 1e30


def additive_scores(queries: Tensor, keys: Tensor, apply_w_v: Callable[[Tensor], Tensor]) -> Tensor:
    """Return scores `w_v^T tanh(q + k)`, `B + (Tq, Tk)`, of projected queries `B + (Tq, U)` and keys `B + (Tk, U)`.

    `apply_w_v` maps features (N, U) to their product with `w_v`, (N, 1). Source: Bahdanau, Cho and Bengio 2014,
    appendix A.1.2.
    """
    return project_features(ops.tanh(ops.expand_dims(queries, -2) + ops.expand_dims(keys, -3)), apply_w_v)


def project_features(features: Tensor, apply_w_v: Callable[[Tensor], Tensor]) -> Tensor:
    """Return scores `B + (Tq, Tk)` of features `B + (Tq, Tk, U)`; `apply_w_v` maps (N, U) to (N, 1)."""
    # Two axes: TensorFlow's product of rank 4 by rank 2 is wrong, or writes outside of its memory, if an axis has
    # size 1 (tensorflow issues 117700 and 123109), and Keras before 3.15 uses it.
    *axes, num_hiddens = ops.shape(features)
    return fast_reshape(apply_w_v(fast_reshape(features, (-1, num_hiddens))), tuple(axes))


def dot_product_scores(queries: Tensor, keys: Tensor, scale: float | Tensor) -> Tensor:
    """Return scaled dot products `scale * q.k`, `B + (Tq, Tk)`, of queries `B + (Tq, D)` and keys `B + (Tk, D)`.

    Source: Vaswani et al. 2017, equation 1, with scale 1/sqrt(D).
    """
    # Scaling queries takes Tq D multiplications, not Tq Tk, and makes overflow in float16 (65504) less likely.
    return ops.matmul(queries * scale, ops.swapaxes(keys, -2, -1))


def gaussian_scores(queries: Tensor, keys: Tensor, bandwidth: Tensor) -> Tensor:
    """Return scores `-||q - k||^2 / (2 h^2)`, `B + (Tq, Tk)`, of queries `B + (Tq, D)` and keys `B + (Tk, D)`.

    The bandwidth h is a scalar tensor. Computed and returned in float32 at least, as squares overflow in float16. Up
    to `MAX_EXACT_AXES` axes the differences `q - k` are computed, `B Tq Tk D` numbers without cancellation. For larger
    D the distance is expanded to `||q||^2 - 2 q.k + ||k||^2`.
    """
    queries, keys = at_least_float32(queries), at_least_float32(keys)
    bandwidth = ops.cast(bandwidth, dtype_of(queries))
    if not uses_expanded_distance(queries):
        differences = (ops.expand_dims(queries, -2) - ops.expand_dims(keys, -3)) / bandwidth
        return -0.5 * ops.sum(differences * differences, axis=-1)
    queries, keys = queries / bandwidth, keys / bandwidth
    query_terms, key_terms = (0.5 * ops.sum(x * x, axis=-1) for x in (queries, keys))
    products = ops.matmul(queries, ops.swapaxes(keys, -2, -1))
    return products - ops.expand_dims(query_terms, -1) - ops.expand_dims(key_terms, -2)


def append_squared_norms(
    queries: Tensor, keys: Tensor, bandwidth: Tensor, *, with_query_terms: bool
) -> tuple[Tensor, Tensor]:
    """Return vectors whose dot products are the scores of `gaussian_scores`, for the exporter's dot-product forms.

    With `q' = q/h`, `k' = k/h`: queries `[q', 1, -||q'||^2/2]`, `B + (Tq, D + 2)`, and keys `[k', -||k'||^2/2, 1]`,
    `B + (Tk, D + 2)`. Without query terms both lack the last entry; a softmax cancels this constant of each query.
    Arguments as in `gaussian_scores`.
    """
    bandwidth = ops.cast(bandwidth, dtype_of(queries))
    queries, keys = queries / bandwidth, keys / bandwidth
    query_terms, key_terms = (-0.5 * ops.sum(x * x, axis=-1, keepdims=True) for x in (queries, keys))
    columns = [(queries, keys), (ops.ones_like(query_terms), key_terms)]
    if with_query_terms:
        columns.append((query_terms, ops.ones_like(key_terms)))
    long_queries, long_keys = (ops.concatenate(vectors, axis=-1) for vectors in zip(*columns, strict=True))
    return long_queries, long_keys


def uses_expanded_distance(queries: Tensor) -> bool:
    """Return True if `gaussian_scores` expands the distance from queries `B + (Tq, D)`; also if D is unknown."""
    return queries.shape[-1] is None or queries.shape[-1] > MAX_EXACT_AXES


def normalize_vectors(vectors: Tensor) -> Tensor:
    """Divide vectors `B + (T, D)` by their norms, computed in float32 at least; zero vectors stay zero."""
    return ops.cast(at_least_float32(vectors) / vector_norms(vectors), dtype_of(vectors))


def vector_norms(vectors: Tensor) -> Tensor:
    """Return Euclidean norms `B + (T, 1)` of vectors `B + (T, D)`, in float32 at least; 1 for zero vectors."""
    wide_vectors = at_least_float32(vectors)
    # Divide by the largest entry, so that squares neither overflow nor underflow. The norm does not depend on it.
    max_abs = ops.stop_gradient(max_with_floor(ops.abs(wide_vectors), 0.0))
    unit = ops.where(max_abs > 0, max_abs, 1.0)
    squares = ops.sum((wide_vectors / unit) ** 2, axis=-1, keepdims=True)
    return unit * ops.sqrt(ops.where(squares > 0, squares, 1.0))


def max_with_floor(array: Tensor, minimum: float) -> Tensor:
    """Return `max(minimum, max over the last axis)`: `B + (N,)` to `B + (1,)`; N may be 0."""
    if 0 in array.shape:
        return ops.full_like(ops.sum(array, axis=-1, keepdims=True), minimum)
    if array.shape[-1] is None:
        return ops.max(array, axis=-1, keepdims=True, initial=minimum)
    # Without `initial`: on torch, Keras 3.15.1 creates it on the CPU even if the array is on a GPU.
    return ops.maximum(ops.max(array, axis=-1, keepdims=True), minimum)


def clip_score_bias(bias: Tensor, dtype: str) -> Tensor:
    """Clip a score bias of any shape to finite values that a layer of `dtype` can add to scores."""
    # Additive masks are often -1e9 or the lowest float32. Cast to the layer's dtype, the first is minus infinity in
    # float16 and the second in bfloat16. A row of minus infinities gives NaN, and the lowest float32 is the fill value
    # of masked scores, so that a masked key could get weight.
    max_abs = float(np.finfo(np.float16).max) if "float16" in (dtype, dtype_of(bias)) else MAX_ABS_BIAS
    return ops.clip(bias, -max_abs, max_abs)
