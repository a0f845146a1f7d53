"""Uniform access to the states, sizes and dropout of Keras's recurrent cells."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from .._types import Tensor


def state_sizes(cell: Any) -> list[int]:
    """Return the sizes of a cell's states as a flat list, from the lowest of stacked cells up."""
    return [int(size) for size in keras.tree.flatten(cell.state_size)]


def hidden_state_index(cell: Any) -> int:
    """Return the index of the hidden state: the first state of the cell, or of the top of stacked cells."""
    if not isinstance(cell, keras.layers.StackedRNNCells):
        return 0
    *lower, top = cell.cells
    return sum(len(state_sizes(lower_cell)) for lower_cell in lower) + hidden_state_index(top)


def output_size(cell: Any) -> int:
    """Return the size of a cell's output."""
    size = getattr(cell, "output_size", None)
    return state_sizes(cell)[0] if size is None else int(size)


def pack_states(cell: Any, states: Sequence[Tensor]) -> Any:
    """Return a flat list of states in the nested structure that the cell expects."""
    return list(states) if isinstance(cell.state_size, int) else keras.tree.pack_sequence_as(cell.state_size, states)


def make_initial_states(cell: Any, batch_size: Any) -> list[Tensor]:
    """Return the initial states of a cell, `(B, units)` each, as a flat list."""
    if hasattr(cell, "get_initial_state"):
        return list(keras.tree.flatten(cell.get_initial_state(batch_size=batch_size)))
    return [ops.zeros((batch_size, size), cell.compute_dtype) for size in state_sizes(cell)]


@contextlib.contextmanager
def fixed_dropout_masks(cell: Any, inputs: Tensor, training: bool | None) -> Iterator[None]:
    """Use the same dropout masks at all steps within the context, for inputs (B, size) of one step."""
    # `keras.layers.RNN` does so too. The masks depend only on the shape and dtype of `inputs`, and cells cache them
    # until a reset. They are drawn before the loop, since a tensor created in a compiled loop cannot be used outside.
    _reset_dropout_masks(cell)
    try:
        if training:
            _draw_dropout_masks(cell, inputs)
        yield
    finally:
        _reset_dropout_masks(cell)


@contextlib.contextmanager
def seed_each_step(
    cell: Any, step: Callable[..., Any], inputs: Tensor, training: bool | None
) -> Iterator[tuple[Callable[..., Any], Any]]:
    """Wrap a step and its inputs (B, T, Dx) so that each iteration of a loop uses its own random seeds."""
    # JAX traces the step only once. A seed that the step reads would be the same constant at all steps, and a seed that
    # it assigns would hold an invalid tracer after the loop. So the loop gets the seeds of all steps as further inputs
    # (1, T, 2). A seed is two numbers. The second one increases by 1 at each step, as in eager execution.
    seeds = [variable for variable in cell.non_trainable_variables if variable.name == "seed_generator_state"]
    if keras.backend.backend() != "jax" or not training or not seeds:
        yield step, inputs
        return
    step_numbers = np.arange(inputs.shape[1] + 1, dtype="uint32")
    offsets = np.stack([np.zeros_like(step_numbers), step_numbers], axis=-1)
    seeds_by_step = [seed.value + offsets for seed in seeds]  # (T + 1, 2) each; the last row is the seed after the loop

    def seeded_step(inputs: Any, states: Any) -> Any:
        inputs, *step_seeds = inputs
        for seed, step_seed in zip(seeds, step_seeds, strict=True):
            seed.assign(step_seed[0])
        return step(inputs, states)

    try:
        yield seeded_step, (inputs, *(array[None, :-1] for array in seeds_by_step))
    finally:
        for seed, array in zip(seeds, seeds_by_step, strict=True):
            seed.assign(array[-1])


def _draw_dropout_masks(cell: Any, inputs: Tensor) -> None:
    if isinstance(cell, keras.layers.StackedRNNCells):
        for part in cell.cells:
            _draw_dropout_masks(part, inputs)
            inputs = ops.zeros((ops.shape(inputs)[0], output_size(part)), inputs.dtype)
    elif hasattr(cell, "get_dropout_mask"):
        cell.get_dropout_mask(inputs)
        cell.get_recurrent_dropout_mask(ops.zeros((ops.shape(inputs)[0], state_sizes(cell)[0]), inputs.dtype))


def _reset_dropout_masks(cell: Any) -> None:
    for part in getattr(cell, "cells", [cell]):
        if hasattr(part, "reset_dropout_mask"):
            part.reset_dropout_mask()
            part.reset_recurrent_dropout_mask()
