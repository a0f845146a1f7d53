"""Score functions: additive, dot product, Gaussian and cosine."""

from collections.abc import Callable

import numpy as np
from keras import ops

from .._shapes import at_least_float32, dtype_of, fast_reshape
from .._types import Tensor

# Up to so many axes positions are taken for coordinates, which may be large beside their distances (years, metres).
MAX_EXACT_AXES = 8

# Far beyond any score, and far enough from the ends of float32 that sums over keys stay in it.
MAX_ABS_BIAS = 1e30


def additive_scores(queries: Tensor, keys: Tensor, apply_w_v: Callable[[Tensor], Tensor]) -> Tensor:
    """Return additive scores `w_v^T tanh(q + k)` of projected queries `B + (Tq, U)` and keys `B + (Tk, U)`.

    `weigh` maps features (N, U) of all pairs to (N, 1): the product with `w_v`. Source: Bahdanau, Cho and Bengio 2014,
    appendix A.1.2.
    """
    return project_features(ops.tanh(ops.expand_dims(queries, -2) + ops.expand_dims(keys, -3)), apply_w_v)


def project_features(features: Tensor, apply_w_v: Callable[[Tensor], Tensor]) -> Tensor:
    """Scores `B + (Tq, Tk)` of features `B + (Tq, Tk, U)`.

    `weigh` gets two axes: TensorFlow's product of four axes by two goes wrong where one of them is 1, down to writing
    past its memory, and Keras before 3.15 uses it (tensorflow issues 117700 and 123109).
    """
    *axes, num_hiddens = ops.shape(features)
    return fast_reshape(apply_w_v(fast_reshape(features, (-1, num_hiddens))), tuple(axes))


def dot_product_scores(queries: Tensor, keys: Tensor, scale: float | Tensor) -> Tensor:
    """Return scaled dot products `scale * q.k` of queries `B + (Tq, D)` and keys `B + (Tk, D)`.

    The queries are scaled before the product: Tq D multiplications instead of Tq Tk, and the product of two float16
    vectors is far less likely to pass 65504. Source: Vaswani et al. 2017, equation 1, with scale 1/sqrt(D).
    """
    return ops.matmul(queries * scale, ops.swapaxes(keys, -2, -1))


def gaussian_scores(queries: Tensor, keys: Tensor, bandwidth: Tensor) -> Tensor:
    """Return scores `-||q - k||^2 / (2 h^2)` of queries `B + (Tq, D)` and keys `B + (Tk, D)`, in float32 at least.

    Squares leave float16 soon. For up to `COORDINATES` axes each difference is taken, which is exact however far from
    the origin the points lie. For more axes `||q||^2 - 2 q.k + ||k||^2` is, which needs no memory for differences, `B
    Tq Tk D` numbers, and loses digits where positions are large beside their distances.
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
    """Return vectors whose dot products are the scores of `gaussian_scores`, or with a softmax as good.

    Without `of_queries_too` the scores lack the term that is the same for all keys of a query, which no softmax sees.
    """
    bandwidth = ops.cast(bandwidth, dtype_of(queries))
    queries, keys = queries / bandwidth, keys / bandwidth
    query_terms, key_terms = (-0.5 * ops.sum(x * x, axis=-1, keepdims=True) for x in (queries, keys))
    columns = [(queries, keys), (ops.ones_like(query_terms), key_terms)]
    if with_query_terms:
        columns.append((query_terms, ops.ones_like(key_terms)))
    longer_queries, longer_keys = (ops.concatenate(vectors, axis=-1) for vectors in zip(*columns, strict=True))
    return longer_queries, longer_keys


def uses_expanded_distance(queries: Tensor) -> bool:
    """Whether `gaussian_scores` takes distances from `queries` by products; True where their size is unknown."""
    return queries.shape[-1] is None or queries.shape[-1] > MAX_EXACT_AXES


def normalize_vectors(vectors: Tensor) -> Tensor:
    """Vectors `B + (T, D)` over their lengths; zeros stay zeros. Lengths are taken in float32 at least."""
    return ops.cast(at_least_float32(vectors) / vector_norms(vectors), dtype_of(vectors))


def vector_norms(vectors: Tensor) -> Tensor:
    """Lengths of vectors `B + (T, D)`, `B + (T, 1)` in float32 at least; 1 for zeros, so that they divide."""
    wide_vectors = at_least_float32(vectors)
    # In units of the largest entry, so that squares neither overflow nor vanish. The result does not depend on it.
    max_abs = ops.stop_gradient(max_with_floor(ops.abs(wide_vectors), 0.0))
    unit = ops.where(max_abs > 0, max_abs, 1.0)
    squares = ops.sum((wide_vectors / unit) ** 2, axis=-1, keepdims=True)
    return unit * ops.sqrt(ops.where(squares > 0, squares, 1.0))


def max_with_floor(numbers: Tensor, minimum: float) -> Tensor:
    """The largest of numbers `B + (N,)` and one more, `B + (1,)`.

    Not by the `initial` of `keras.ops.max` where there are numbers: on torch it lies on the CPU, wherever these do
    (Keras 3.15.1).
    """
    if 0 in numbers.shape:
        return ops.full_like(ops.sum(numbers, axis=-1, keepdims=True), minimum)
    if numbers.shape[-1] is None:
        return ops.max(numbers, axis=-1, keepdims=True, initial=minimum)
    return ops.maximum(ops.max(numbers, axis=-1, keepdims=True), minimum)


def clip_score_bias(bias: Tensor, dtype: str) -> Tensor:
    """A bias in the range that a layer of some dtype can add; what lies beyond it, infinity too, is its end.

    Masks that are added are often made of -1e9 or the lowest float32. The former is minus infinity in float16, the
    latter in bfloat16, and as a score it would be what masked pairs get: a row of it is NaN, or lets them take part.
    """
    max_abs = float(np.finfo(np.float16).max) if "float16" in (dtype, dtype_of(bias)) else MAX_ABS_BIAS
    return ops.clip(bias, -max_abs, max_abs)
