"""State and stopping rule of a decoding loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from .._shapes import dtype_of, shape_of
from .._types import Shape, Tensor

Tensors = dict[str, Tensor]
Spec = tuple[Shape, str]
Specs = dict[str, Spec]


class Carry(NamedTuple):
    """What goes from step to step.

    Attributes:
        rows: `(n, ...)` each, among them `"done"`, booleans `(n,)`.
        states: Those of the step, `(n W, ...)` each: W for a row.
    """

    rows: Tensors
    states: Tensors


class Search(NamedTuple):
    """A search as the loops see it.

    `advance` maps the number of a step, a carry, memory `(n W, ...)` and the first entry of each row, `(n, 1)`, to the
    next carry and what is kept of the step, `(n W, ...)` each. It leaves finished rows as they are.
    """

    advance: Callable[[Tensor, Carry, Tensors, Tensor], tuple[Carry, Tensors]]
    carry: Carry  # the first one, of all B rows
    memory: Tensors  # the same for each step, `(B, ...)` each
    width: int  # W
    limit: int  # the largest number of steps, at least 1
    ends: bool  # whether a row can be done before that
    rows_stay: bool  # whether rows that are done stay: the step takes one batch only
    states: Specs  # with None for each size that may change
    kept: Callable[[], Specs]  # of what is kept of a step, for loops that must know it before


def spec_of(tensor: Any) -> Spec:
    """Shape and dtype of a tensor, with None for the batch."""
    return (None, *shape_of(tensor)[1:]), dtype_of(tensor)


def most_done(search: Search, done: Tensor) -> Tensor:
    """How many rows may be done for another step of the inner loop: half, or all but one where they stay."""
    count = ops.shape(done)[0]
    return count - 1 if search.rows_stay else count // 2


def goes_on(search: Search, step: Tensor, last: Any, done: Tensor, most: Tensor) -> Tensor:
    """Whether the inner loop takes another step: there is one left, and not too many rows are done."""
    left = ops.less_equal(step, last)  # not `less`, for which an ONNX file casts to floats
    if not search.ends:
        return left
    return ops.logical_and(left, ops.less_equal(ops.sum(ops.cast(done, "int32")), most))


def first_entries(carry: Carry, width: int) -> Tensor:
    """The place of the first entry of each row, `(n, 1)`."""
    return ops.expand_dims(ops.arange(ops.shape(carry.rows["done"])[0], dtype="int32") * width, 1)
