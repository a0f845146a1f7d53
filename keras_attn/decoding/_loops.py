"""Decoding loops: dynamic (finished rows are dropped) or static (XLA, JAX).

With dynamic shapes there are two loops: the inner loop runs steps until more than half of its rows are finished, and
the outer loop drops these rows. If the step has a fixed batch size, the inner loop runs until all rows are finished.
With static shapes a single loop over all rows runs until the last row is finished.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from .._keras.private_api import is_compiled_by_xla
from .._shapes import dtype_of, shape_of
from .._types import Tensor
from ._loop_state import Carry, DecodingLoop, Tensors, compute_row_offsets, max_finished_rows, should_continue
from ._ops import repeat, take, where


def run_loop(loop: DecodingLoop) -> tuple[Tensors, Tensors]:
    """Run a decoding loop; return the rows of the last carry, `(B, ...)`, and the outputs of all steps.

    The outputs are `(L, B W, ...)` each; entries of a row after its end are arbitrary.
    """
    backend = keras.backend.backend()
    if backend == "jax" or (backend == "tensorflow" and is_compiled_by_xla()):
        return _run_static(loop)
    if backend != "tensorflow":
        return _run_dynamic(loop, _run_inner, _run_outer)
    from ._tensorflow_loops import run_inner, run_outer  # TensorFlow is optional

    return _run_dynamic(loop, run_inner, run_outer)


def _run_dynamic(loop: DecodingLoop, inner: Callable[..., Any], outer: Callable[..., Any]) -> tuple[Tensors, Tensors]:
    """Run a decoding loop with dynamic shapes. `inner` and `outer` are like `_run_inner` and `_run_outer`."""
    first_step = ops.convert_to_tensor(0, "int32")
    if not loop.can_stop_early:
        _, carry, outputs = inner(loop, first_step, loop.carry, _repeat_memory(loop))
        return carry.rows, outputs

    def body(step: Tensor, carry: Carry, rows: Tensors, outputs: Tensors) -> tuple[Any, ...]:
        # `carry` has only the n unfinished rows; `rows` and `outputs` have all B rows.
        running = ops.logical_not(rows["done"])
        index = repeat(_find_true(running), loop.width)
        memory = {name: take(x, index) for name, x in loop.memory.items()}
        step, carry, latest = inner(loop, step, carry, memory)
        # The position of row b among the n rows is the number of running rows before it. Finished rows gather another
        # row's values here: `where` discards the rows, and nothing reads outputs after the end of a row.
        position = ops.maximum(ops.cumsum(ops.cast(running, "int32")) - 1, 0)
        rows = {name: where(running, take(carry.rows[name], position), x) for name, x in rows.items()}
        outputs = {
            name: _concatenate_steps(outputs.get(name), take(x, _expand_to_beam(position, loop.width), axis=1))
            for name, x in latest.items()
        }
        remaining = _find_true(ops.logical_not(carry.rows["done"]))
        carry = Carry(
            {name: take(x, remaining) for name, x in carry.rows.items()},
            {name: take(x, _expand_to_beam(remaining, loop.width)) for name, x in carry.states.items()},
        )
        return step, carry, rows, outputs

    step, _, rows, outputs = outer(loop, body, (first_step, loop.carry, loop.carry.rows))
    # Pad to L steps with copies of the last step, after which all rows are finished.
    index = ops.minimum(ops.arange(loop.max_steps, dtype="int32"), step - 1)
    return rows, {name: take(x, index) for name, x in outputs.items()}


def _run_inner(loop: DecodingLoop, first_step: Tensor, carry: Carry, memory: Tensors) -> tuple[Tensor, Carry, Tensors]:
    """Run steps until `should_continue` is False; return the index of the next step, the carry and the outputs."""
    latest: list[Tensors] = []
    step, max_finished = first_step, max_finished_rows(loop, carry.rows["done"])
    row_offsets = compute_row_offsets(carry, loop.width)
    while not latest or should_continue(loop, step, loop.max_steps - 1, carry.rows["done"], max_finished):
        carry, outputs = loop.advance(step, carry, memory, row_offsets)
        latest.append(outputs)
        step = step + 1
    return step, carry, {name: ops.stack([outputs[name] for outputs in latest]) for name in latest[0]}


def _run_outer(loop: DecodingLoop, body: Callable[..., Any], initial: tuple[Any, ...]) -> Any:
    """Call `body` at least once, until all rows are finished or `max_steps` is reached."""
    step, carry, rows, outputs = body(*initial, {})
    while step < loop.max_steps and not ops.all(rows["done"]):
        step, carry, rows, outputs = body(step, carry, rows, outputs)
    return step, carry, rows, outputs


def _find_true(condition: Tensor) -> Tensor:
    """Return the indices, int32, at which a condition `(n,)` is True."""
    return ops.cast(ops.nonzero(condition)[0], "int32")


def _repeat_memory(loop: DecodingLoop) -> Tensors:
    return {name: repeat(x, loop.width) for name, x in loop.memory.items()}


def _expand_to_beam(index: Tensor, width: int) -> Tensor:
    """Return the indices of the W beam entries of each row in `index` (k,): `(k W,)`."""
    if width == 1:
        return index
    return ops.reshape(ops.expand_dims(index * width, 1) + ops.arange(width, dtype="int32"), (-1,))


def _concatenate_steps(earlier: Tensor | None, latest: Tensor) -> Tensor:
    """Concatenate outputs `(T, B W, ...)` along the steps; `earlier` is None or has no step at first."""
    if earlier is None:
        return latest
    # At first `earlier` has no step, and size 0 on the axes whose size is unknown when the loop is traced.
    if None in shape_of(latest)[2:]:
        earlier = ops.reshape(earlier, (*ops.shape(earlier)[:2], *ops.shape(latest)[2:]))
    return ops.concatenate([earlier, latest], axis=0)


def _run_static(loop: DecodingLoop) -> tuple[Tensors, Tensors]:
    """Run a decoding loop over all rows until the last row is finished."""
    memory, row_offsets = _repeat_memory(loop), compute_row_offsets(loop.carry, loop.width)
    # The first step runs before the loop, because its outputs have the shapes of the buffers.
    carry, latest = loop.advance(ops.convert_to_tensor(0, "int32"), loop.carry, memory, row_offsets)
    _check_no_growth(loop.carry.states, carry.states)
    buffers = {name: ops.zeros((loop.max_steps, *ops.shape(x)), dtype_of(x)) for name, x in latest.items()}
    outputs = {name: _write_step(x, 0, latest[name]) for name, x in buffers.items()}

    def condition(step: Tensor, carry: Carry, outputs: Tensors) -> Tensor:
        has_step = ops.less(step, loop.max_steps)
        if not loop.can_stop_early:
            return has_step
        return ops.logical_and(has_step, ops.logical_not(ops.all(carry.rows["done"])))

    def body(step: Tensor, carry: Carry, outputs: Tensors) -> tuple[Any, ...]:
        carry, latest = loop.advance(step, carry, memory, row_offsets)
        return step + 1, carry, {name: _write_step(x, step, latest[name]) for name, x in outputs.items()}

    if loop.max_steps > 1:
        _, carry, outputs = ops.while_loop(condition, body, (ops.convert_to_tensor(1, "int32"), carry, outputs))
    return carry.rows, outputs


def _write_step(outputs: Tensor, step: Any, latest: Tensor) -> Tensor:
    """Return outputs `(L, B W, ...)` with `latest` (B W, ...) at index `step`."""
    zeros = [0] * len(latest.shape)
    return ops.slice_update(outputs, [step, *zeros], ops.expand_dims(latest, 0))


def _check_no_growth(before: Tensors, after: Tensors) -> None:
    for name, x in before.items():
        if shape_of(x)[1:] != shape_of(after[name])[1:]:
            raise ValueError(
                f"The state `{name}` must keep its shape from step to step: this backend, or XLA, compiles a loop "
                f"for one shape. Received: shape {shape_of(x)} before a step, {shape_of(after[name])} after it. Use a "
                "cache of fixed capacity: pass its length as an input, and let the step write at its `position`."
            )
