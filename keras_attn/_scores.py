"""How well each query matches each key: pure functions from queries and keys to scores `B + (Tq, Tk)`."""

from collections.abc import Callable

from keras import ops

from ._types import Tensor


def additive_scores(queries: Tensor, keys: Tensor, weigh: Callable[[Tensor], Tensor]) -> Tensor:
    """Additive scores `w_v^T tanh(q + k)` of projected queries and keys.

    Args:
        queries: Projected queries `W_q q`, `B + (Tq, U)`.
        keys: Projected keys `W_k k`, `B + (Tk, U)`.
        weigh: Maps features `B + (Tq, Tk, U)` to `B + (Tq, Tk, 1)`: the product with `w_v`.

    Source: Bahdanau, Cho and Bengio 2014, appendix A.1.2.
    """
    features = ops.tanh(ops.expand_dims(queries, -2) + ops.expand_dims(keys, -3))
    return ops.squeeze(weigh(features), -1)


def dot_product_scores(queries: Tensor, keys: Tensor, scale: float | Tensor) -> Tensor:
    """Scaled dot products `scale * q.k`.

    The queries are scaled before the product: Tq D multiplications instead of Tq Tk, and the product of two float16
    vectors is far less likely to pass 65504.

    Args:
        queries: `B + (Tq, D)`.
        keys: `B + (Tk, D)`.
        scale: A number, or a scalar tensor of the dtype of the queries.

    Source: Vaswani et al. 2017, equation 1, with scale 1/sqrt(D).
    """
    return ops.matmul(queries * scale, ops.swapaxes(keys, -2, -1))
