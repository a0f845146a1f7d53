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
    """Loop variables of a decoding loop.

    Attributes:
        rows: State of each row, `(n, ...)` each; `"done"` are booleans `(n,)`.
        states: States of the step, `(n W, ...)` each, W per row.
    """

    rows: Tensors
    states: Tensors


class DecodingLoop(NamedTuple):
    """Specification of a greedy or beam decoding loop, which the backends run.

    `advance` maps the index of a step, a carry, memory `(n W, ...)` and the offset of each row in the beam, `(n, 1)`,
    to the next carry and the step outputs to keep, `(n W, ...)` each. Finished rows stay unchanged.
    """

    advance: Callable[[Tensor, Carry, Tensors, Tensor], tuple[Carry, Tensors]]
    carry: Carry  # initial, with all B rows
    memory: Tensors  # inputs that are the same at each step, `(B, ...)` each
    width: int  # W
    max_steps: int  # at least 1
    can_stop_early: bool  # whether rows can be done before `max_steps`
    keeps_finished_rows: bool  # whether the batch size is fixed, so that no row can be dropped
    state_specs: Specs  # with None for each size that may change
    # Of the step outputs to keep. A function, because only TensorFlow needs the specs, before the loop.
    output_specs: Callable[[], Specs]


def spec_of(tensor: Any) -> Spec:
    """Return the shape, with None for the batch, and the dtype of a tensor."""
    return (None, *shape_of(tensor)[1:]), dtype_of(tensor)


def max_finished_rows(loop: DecodingLoop, done: Tensor) -> Tensor:
    """Return the largest number of finished rows `done` (n,) with which the inner loop continues."""
    # n / 2: at least half of the computed rows are needed, and rows are gathered at most about log2(B) times.
    num_rows = ops.shape(done)[0]
    return num_rows - 1 if loop.keeps_finished_rows else num_rows // 2


def should_continue(loop: DecodingLoop, step: Tensor, last_step: Any, done: Tensor, max_finished: Tensor) -> Tensor:
    """Return True if the inner loop has steps left and at most `max_finished` rows of `done` (n,) are finished."""
    # Not `less`, for which an ONNX file casts to floats.
    has_step = ops.less_equal(step, last_step)
    if not loop.can_stop_early:
        return has_step
    return ops.logical_and(has_step, ops.less_equal(ops.sum(ops.cast(done, "int32")), max_finished))


def compute_row_offsets(carry: Carry, width: int) -> Tensor:
    """Return the index of the first beam entry of each row, `(n, 1)`: 0, W, 2 W, ..."""
    return ops.expand_dims(ops.arange(ops.shape(carry.rows["done"])[0], dtype="int32") * width, 1)
