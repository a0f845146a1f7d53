"""Decoding loops: dynamic (finished rows are dropped) or static (XLA, JAX).

Where a backend has dynamic shapes, rows that are done leave: an inner loop steps until more than half of its rows are
done, and an outer one goes on with the others; where a step takes one batch only, the inner one goes on until all are.
Where shapes are static, one loop over all rows ends with the last.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from .._keras.private_api import is_compiled_by_xla
from .._shapes import dtype_of, shape_of
from .._types import Tensor
from ._loop_state import Carry, Search, Tensors, first_entries, goes_on, most_done
from ._ops import repeat, take, where


def run(search: Search) -> tuple[Tensors, Tensors]:
    """Run a search to its end; return the rows of the last carry, `(B, ...)`, and what was kept of all steps.

    The latter are `(L, B W, ...)` each, which of a row that is done may be anything.
    """
    backend = keras.backend.backend()
    if backend == "jax" or (backend == "tensorflow" and is_compiled_by_xla()):
        return _run_static(search)
    if backend != "tensorflow":
        return _run_dynamic(search, _inner, _outer)
    from ._tensorflow_loops import inner, outer  # TensorFlow may not be there

    return _run_dynamic(search, inner, outer)


def _run_dynamic(search: Search, inner: Callable[..., Any], outer: Callable[..., Any]) -> tuple[Tensors, Tensors]:
    """Runs a search where rows can leave, in two loops like `_inner` and `_outer`."""
    first = ops.convert_to_tensor(0, "int32")
    if not search.ends:
        _, carry, steps = inner(search, first, search.carry, _whole_memory(search))
        return carry.rows, steps

    def body(step: Tensor, carry: Carry, rows: Tensors, steps: Tensors) -> tuple[Any, ...]:
        running = ops.logical_not(rows["done"])
        index = repeat(_places(running), search.width)
        memory = {name: take(x, index) for name, x in search.memory.items()}
        step, carry, latest = inner(search, step, carry, memory)
        # Rows that have left get what is another's: it is not read.
        place = ops.maximum(ops.cumsum(ops.cast(running, "int32")) - 1, 0)
        rows = {name: where(running, take(carry.rows[name], place), x) for name, x in rows.items()}
        steps = {
            name: _joined(steps.get(name), take(x, _entries(place, search.width), axis=1)) for name, x in latest.items()
        }
        still = _places(ops.logical_not(carry.rows["done"]))
        carry = Carry(
            {name: take(x, still) for name, x in carry.rows.items()},
            {name: take(x, _entries(still, search.width)) for name, x in carry.states.items()},
        )
        return step, carry, rows, steps

    step, _, rows, steps = outer(search, body, (first, search.carry, search.carry.rows))
    # After the last step all rows are done: what stands there is not read either.
    place = ops.minimum(ops.arange(search.limit, dtype="int32"), step - 1)
    return rows, {name: take(x, place) for name, x in steps.items()}


def _inner(search: Search, first: Tensor, carry: Carry, memory: Tensors) -> tuple[Tensor, Carry, Tensors]:
    """Steps for as long as `goes_on` says; gives the number of the next step, the carry and what was kept."""
    latest: list[Tensors] = []
    step, most = first, most_done(search, carry.rows["done"])
    entries = first_entries(carry, search.width)
    while not latest or goes_on(search, step, search.limit - 1, carry.rows["done"], most):
        carry, kept = search.advance(step, carry, memory, entries)
        latest.append(kept)
        step = step + 1
    return step, carry, {name: ops.stack([kept[name] for kept in latest]) for name in latest[0]}


def _outer(search: Search, body: Callable[..., Any], first: tuple[Any, ...]) -> Any:
    """Calls `body` once, and again until no row is left or no step."""
    step, carry, rows, steps = body(*first, {})
    while step < search.limit and not ops.all(rows["done"]):
        step, carry, rows, steps = body(step, carry, rows, steps)
    return step, carry, rows, steps


def _places(condition: Tensor) -> Tensor:
    """Where a condition `(n,)` holds."""
    return ops.cast(ops.nonzero(condition)[0], "int32")


def _whole_memory(search: Search) -> Tensors:
    return {name: repeat(x, search.width) for name, x in search.memory.items()}


def _entries(index: Tensor, width: int) -> Tensor:
    """The places of the W entries of each row that an index names."""
    if width == 1:
        return index
    return ops.reshape(ops.expand_dims(index * width, 1) + ops.arange(width, dtype="int32"), (-1,))


def _joined(before: Tensor | None, latest: Tensor) -> Tensor:
    """Steps after steps. Before the first there are none, of a shape that may not be known yet."""
    if before is None:
        return latest
    if None in shape_of(latest)[2:]:
        before = ops.reshape(before, (*ops.shape(before)[:2], *ops.shape(latest)[2:]))
    return ops.concatenate([before, latest], axis=0)


def _run_static(search: Search) -> tuple[Tensors, Tensors]:
    """Runs a search over all rows to the end of the last."""
    memory, entries = _whole_memory(search), first_entries(search.carry, search.width)
    # The first step stands before the loop: it shows the shapes of what is kept.
    carry, kept = search.advance(ops.convert_to_tensor(0, "int32"), search.carry, memory, entries)
    _check_no_growth(search.carry.states, carry.states)
    empty = {name: ops.zeros((search.limit, *ops.shape(x)), dtype_of(x)) for name, x in kept.items()}
    steps = {name: _with_step(x, 0, kept[name]) for name, x in empty.items()}

    def condition(step: Tensor, carry: Carry, steps: Tensors) -> Tensor:
        left = ops.less(step, search.limit)
        return ops.logical_and(left, ops.logical_not(ops.all(carry.rows["done"]))) if search.ends else left

    def body(step: Tensor, carry: Carry, steps: Tensors) -> tuple[Any, ...]:
        carry, kept = search.advance(step, carry, memory, entries)
        return step + 1, carry, {name: _with_step(x, step, kept[name]) for name, x in steps.items()}

    if search.limit > 1:
        _, carry, steps = ops.while_loop(condition, body, (ops.convert_to_tensor(1, "int32"), carry, steps))
    return carry.rows, steps


def _with_step(steps: Tensor, step: Any, latest: Tensor) -> Tensor:
    zeros = [0] * len(latest.shape)
    return ops.slice_update(steps, [step, *zeros], ops.expand_dims(latest, 0))


def _check_no_growth(before: Tensors, after: Tensors) -> None:
    for name, x in before.items():
        if shape_of(x)[1:] != shape_of(after[name])[1:]:
            raise ValueError(
                f"The state `{name}` must keep its shape from step to step: this backend, or XLA, compiles a loop "
                f"for one shape. Received: shape {shape_of(x)} before a step, {shape_of(after[name])} after it. Use a "
                "cache of fixed capacity: give its input a length, and let the step write at its `position`."
            )
