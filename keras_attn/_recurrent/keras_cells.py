"""Uniform access to the states, sizes and dropout of Keras's recurrent cells."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from .._types import Tensor


def state_sizes(cell: Any) -> list[int]:
    """The sizes of a cell's states, those of stacked cells one after another."""
    return [int(size) for size in keras.tree.flatten(cell.state_size)]


def hidden_place(cell: Any) -> int:
    """Which of the states is the hidden one: the first, of stacked cells the first of the last cell."""
    if not isinstance(cell, keras.layers.StackedRNNCells):
        return 0
    *lower, top = cell.cells
    return sum(len(state_sizes(each)) for each in lower) + hidden_place(top)


def output_size(cell: Any) -> int:
    """The size of what a step of a cell gives."""
    size = getattr(cell, "output_size", None)
    return state_sizes(cell)[0] if size is None else int(size)


def packed(cell: Any, states: Sequence[Tensor]) -> Any:
    """States one after another, as the cell takes them."""
    return list(states) if isinstance(cell.state_size, int) else keras.tree.pack_sequence_as(cell.state_size, states)


def first_states(cell: Any, batch_size: Any) -> list[Tensor]:
    """The states of a cell before its first step."""
    if hasattr(cell, "get_initial_state"):
        return list(keras.tree.flatten(cell.get_initial_state(batch_size=batch_size)))
    return [ops.zeros((batch_size, size), cell.compute_dtype) for size in state_sizes(cell)]


@contextlib.contextmanager
def dropout_drawn_once(cell: Any, inputs: Tensor, training: bool | None) -> Iterator[None]:
    """Let all steps within the context drop the same units, as `keras.layers.RNN` does.

    A cell keeps what it drew until it is told to forget. What it draws within a loop could not be kept. `inputs` are of
    the shape and dtype of the inputs of a step.
    """
    _forget(cell)
    try:
        if training:
            _draw(cell, inputs)
        yield
    finally:
        _forget(cell)


@contextlib.contextmanager
def draws_of_steps(
    cell: Any, step: Callable[..., Any], inputs: Tensor, training: bool | None
) -> Iterator[tuple[Callable[..., Any], Any]]:
    """Return a step and inputs (B, T, Dx) with which every step of a loop draws other random numbers.

    JAX traces a step once, with the seeds as they are then; and what a step leaves in them is no number outside of the
    loop. So there the seeds of all steps go in beside the inputs.
    """
    seeds = [each for each in cell.non_trainable_variables if each.name == "seed_generator_state"]
    if keras.backend.backend() != "jax" or not training or not seeds:
        yield step, inputs
        return
    count = np.arange(inputs.shape[1] + 1, dtype="uint32")
    draws = np.stack([np.zeros_like(count), count], axis=-1)
    of_steps = [each.value + draws for each in seeds]

    def drawing(inputs: Any, states: Any) -> Any:
        inputs, *now = inputs
        for seed, value in zip(seeds, now, strict=True):
            seed.assign(value[0])
        return step(inputs, states)

    try:
        yield drawing, (inputs, *(values[None, :-1] for values in of_steps))
    finally:
        for seed, values in zip(seeds, of_steps, strict=True):
            seed.assign(values[-1])


def _draw(cell: Any, inputs: Tensor) -> None:
    if isinstance(cell, keras.layers.StackedRNNCells):
        for each in cell.cells:
            _draw(each, inputs)
            inputs = ops.zeros((ops.shape(inputs)[0], output_size(each)), inputs.dtype)
    elif hasattr(cell, "get_dropout_mask"):
        cell.get_dropout_mask(inputs)
        cell.get_recurrent_dropout_mask(ops.zeros((ops.shape(inputs)[0], state_sizes(cell)[0]), inputs.dtype))


def _forget(cell: Any) -> None:
    for each in getattr(cell, "cells", [cell]):
        if hasattr(each, "reset_dropout_mask"):
            each.reset_dropout_mask()
            each.reset_recurrent_dropout_mask()
