"""Band masks: causal masks and attention windows."""

from functools import reduce
from typing import Any

from keras import ops

from .._shapes import largest, smallest
from .._types import Pairs, Tensor


def order_mask(pairs: Pairs, num_queries: Any, num_keys: Any, offset: Any = 0) -> Tensor | None:
    """True where queries that begin at a position may see a key by the order of positions; None where they see all.

    Args:
        pairs: Whether query `i` sees only keys `j <= offset + i`, and its window.
        num_queries: Tq, an integer or a scalar tensor.
        num_keys: Tk, likewise.
        offset: Position of the first query: an integer, a scalar tensor, or integers `B`.

    Returns:
        Booleans (Tq, Tk), or `B + (Tq, Tk)` where the offset has B.
    """
    left, right = pairs.band
    if left is None and right is None:
        return None
    own = ops.expand_dims(ops.cast(offset, "int32"), -1) + ops.arange(num_queries, dtype="int32")
    gaps = ops.arange(num_keys, dtype="int32") - ops.expand_dims(own, -1)
    bounds = [] if left is None else [ops.greater_equal(gaps, -left)]
    bounds += [] if right is None else [ops.less_equal(gaps, right)]
    return reduce(ops.logical_and, bounds)


def range_of_keys(pairs: Pairs, start: Any, stop: Any, num_keys: Any) -> tuple[Any, Any]:
    """The first key that some query `start <= i < stop` may see by the order of positions, and the one after the last.

    There is always a key between them, the last one if none is seen.

    Args:
        pairs: Whether query `i` sees only keys `j <= i`, and its window.
        start: Of the queries, an integer or a scalar tensor.
        stop: Likewise.
        num_keys: Tk, likewise.
    """
    left, right = pairs.band
    end = num_keys if right is None else smallest(stop + right, num_keys)
    return 0 if left is None else smallest(largest(start - left, 0), largest(end - 1, 0)), end
