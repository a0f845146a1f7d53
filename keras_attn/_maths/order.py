"""Which pairs take part by the order of positions alone: causal masks and windows."""

from functools import reduce
from typing import Any

from keras import ops

from .._tensors import Pairs, Tensor, Window, largest, smallest


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
    bounds = [] if left is None else [ops.greater_equal(gaps, -left)]
    bounds += [] if right is None else [ops.less_equal(gaps, right)]
    return reduce(ops.logical_and, bounds) if bounds else None


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
