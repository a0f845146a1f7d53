"""Validate the arguments and states of AttentionCell and AttentionRNN."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import keras

from .._checks.call_arguments import check_position_mask
from .._keras.build_placeholders import as_lengths, as_mask
from .._pooling.attention_layer import AttentionLayer
from .._shapes import dtype_of, merge_shapes, shape_of, shapes_agree, sizes_agree
from .._states.cache import LENGTH, PROJECTED, VALUES
from .._types import Shape, Tensor

When = Literal["before", "after"]

NOT_BUILT = "a cell that is not built yet"

_WANTED = {
    "inputs": "a tensor",
    "memory": "a tensor (B, Tk, Dv), or what `precompute` gave",
    "states": "a list of tensors, as `get_initial_state` gives them",
}


class Shapes(NamedTuple):
    """The shapes of the results for inputs (B, T, Dx) and a memory."""

    weights: Shape  # (B, T, Tk), or (B, H, T, Tk) of several heads
    context_size: int | None
    output_size: int | None
    states: list[Shape]


class Masking(NamedTuple):
    """The lengths and masks that a call may be given: of the memory, and of inputs that are a sequence."""

    valid_lens: Tensor | None = None
    memory_mask: Any = None
    input_lens: Tensor | None = None
    inputs_mask: Tensor | None = None


class States(NamedTuple):
    """The states of a cell: those of the cell in it, and two that it may not have."""

    of_cell: list[Tensor]
    fed: Tensor | None
    weights: Tensor | None

    def flat(self) -> list[Tensor]:
        """Return all states, one after another."""
        return [*self.of_cell, *(state for state in (self.fed, self.weights) if state is not None)]


def check_parts(cell: Any, attention: Any, when: Any) -> None:
    """Checks what an `AttentionCell` is made of."""
    is_cell = isinstance(cell, keras.layers.Layer) and hasattr(cell, "state_size")
    if not is_cell or isinstance(cell, keras.layers.RNN):
        raise TypeError(
            "`cell` must be a recurrent cell of Keras, which makes one step, such as `GRUCell(32)` and not `GRU(32)`. "
            f"Received: cell of type {type(cell).__name__}."
        )
    if not isinstance(attention, AttentionLayer):
        raise TypeError(
            "`attention` must be a layer of this package that pools, such as `AdditiveAttention(32)`. "
            f"Received: attention of type {type(attention).__name__}."
        )
    if when not in get_args(When):
        raise ValueError(f'`when` must be "before" or "after" the step of the cell. Received: when={when!r}.')


def check_passed(**arguments: Any) -> None:
    """Checks that no argument is None."""
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"`{name}` must be {_WANTED[name]}. Received: {name}=None.")


def check_not_precomputed(whose: str, memory_shape: Any) -> None:
    """Raises ValueError when a memory was precomputed where its own size is needed."""
    if isinstance(memory_shape, Mapping):
        raise ValueError(
            f"The `memory` of {whose} must be a tensor (B, Tk, Dv), not what `precompute` gave. "
            f"Received: {_received(memory_shape)}. Pass the memory itself."
        )


def of_one_step(inputs_shape: Shape) -> Shape:
    """The shape (B, Dx) of the inputs of a step as that of a sequence of one, (B, 1, Dx)."""
    if len(inputs_shape) != 2:
        raise ValueError(
            f"`inputs` of a step must have shape (B, Dx). Received: inputs shape {tuple(inputs_shape)}. "
            "`AttentionRNN` takes sequences of inputs."
        )
    return inputs_shape[0], 1, inputs_shape[1]


def checked(cell: Any, inputs_shape: Shape, memory: Any, given: Masking) -> tuple[Masking, Shapes]:
    """Checks what a call, symbolic or not, was given; returns lengths and masks as tensors."""
    shapes = shapes_of(cell, inputs_shape, shapes_of_memory(memory))
    batch, *_, steps, places = shapes.weights
    of_memory = given.memory_mask.get(PROJECTED) if isinstance(given.memory_mask, Mapping) else given.memory_mask
    masking = Masking(
        _checked_lengths("valid_lens", given.valid_lens, batch),
        _checked_mask("memory", of_memory, batch, places),
        _checked_lengths("input_lens", given.input_lens, batch),
        _checked_mask("inputs", given.inputs_mask, batch, steps),
    )
    return masking, shapes


def shapes_of_memory(memory: Any) -> Any:
    """The shape of a memory, or the shapes of what was precomputed."""
    return {name: shape_of(each) for name, each in memory.items()} if isinstance(memory, Mapping) else shape_of(memory)


def shapes_of(cell: Any, inputs_shape: Shape, memory_shape: Any) -> Shapes:
    """Check the shapes of inputs (B, T, Dx) and of a memory, and return those of the results."""
    inputs_shape = tuple(inputs_shape)
    is_state = isinstance(memory_shape, Mapping)
    memory_shape = {name: tuple(shape) for name, shape in memory_shape.items()} if is_state else tuple(memory_shape)
    _check_inputs(cell, inputs_shape)
    batch = _checked_memory(cell, inputs_shape, memory_shape)
    if cell.memory_size is None and not is_state and None in (inputs_shape[-1], memory_shape[-1]):
        raise ValueError(
            "The last axes of `inputs` and `memory` must be known when a cell is built: they are sizes of its weights. "
            f"Received: inputs shape {inputs_shape}, {_received(memory_shape)}. Give the sizes in `keras.Input`."
        )
    context_size, weights_shape = _of_attention(cell, (*batch, inputs_shape[1], cell.query_size), memory_shape)
    states = cell.state_shapes(*batch, weights_shape[-1], context_size)
    return Shapes(weights_shape, context_size, cell.output_size_with(context_size), states)


def check_first_states(shapes: list[Shape], wanted: list[Shape], number_of_cell: int) -> None:
    """Check the shapes of initial states: those of the cell in the cell, or all of them."""
    if len(shapes) not in (0, number_of_cell, len(wanted)):
        raise ValueError(
            f"`initial_state` must be the {number_of_cell} states of the cell in the cell, or all {len(wanted)}. "
            f"Received: {len(shapes)} tensors."
        )
    for place, (shape, of_state) in enumerate(zip(shapes, wanted, strict=False)):
        if not shapes_agree(shape, of_state):
            raise ValueError(
                f"`initial_state` must have the shapes of the states. Received: shape {shape} for number {place}, of "
                f"shape {of_state}."
            )


def _check_inputs(cell: Any, inputs_shape: Shape) -> None:
    if len(inputs_shape) != 3:
        raise ValueError(
            f"`inputs` must have shape (B, T, Dx). Received: inputs shape {inputs_shape}. Add or drop axes."
        )
    if inputs_shape[1] == 0:
        raise ValueError(f"`inputs` must have a step at least. Received: inputs shape {inputs_shape}.")
    if not sizes_agree(inputs_shape[-1], cell.inputs_size):
        raise ValueError(
            f"`inputs` must have the size {cell.inputs_size} that the cell was built for, on their last axis. "
            f"Received: inputs shape {inputs_shape}."
        )


def _checked_memory(cell: Any, inputs_shape: Shape, memory_shape: Any) -> Shape:
    """Checks ranks, batches and the size of a memory; returns (B,)."""
    each, axes = [memory_shape], 3
    if isinstance(memory_shape, Mapping):
        if set(memory_shape) not in ({PROJECTED, VALUES}, {PROJECTED, VALUES, LENGTH}):
            raise ValueError(
                f"`memory` must be a tensor (B, Tk, Dv), or the dict with {PROJECTED!r} and {VALUES!r} that "
                f"`precompute` gives. Received: {_received(memory_shape)}."
            )
        if not cell.attention.built:
            check_not_precomputed(NOT_BUILT, memory_shape)
        each, axes = [memory_shape[PROJECTED], memory_shape[VALUES]], cell.attention._time_axis(3) + 2
    if any(len(shape) != axes for shape in each):
        wanted = "(B, Tk, Dv)" if axes == 3 else "(B, G, Tk, ...) in each part"
        raise ValueError(f"`memory` must have shape {wanted}. Received: {_received(memory_shape)}. Add or drop axes.")
    if not all(shapes_agree(inputs_shape[:1], shape[:1]) for shape in each):
        raise ValueError(
            "`inputs` and `memory` must agree in B, their first axis. "
            f"Received: inputs shape {inputs_shape}, {_received(memory_shape)}."
        )
    if not isinstance(memory_shape, Mapping) and not sizes_agree(memory_shape[-1], cell.memory_size):
        raise ValueError(
            f"`memory` must have the size {cell.memory_size} that the cell was built for, on its last axis. "
            f"Received: {_received(memory_shape)}."
        )
    return merge_shapes(inputs_shape[:1], *(shape[:1] for shape in each))


def _of_attention(cell: Any, queries_shape: Shape, memory_shape: Any) -> tuple[int | None, Shape]:
    """The size of the context, and the shape of the weights."""
    values_shape = None if isinstance(memory_shape, Mapping) else memory_shape
    rule = (
        f"`memory` must fit `{cell.attention.name}`, which the cell asks by states of size {cell.query_size}; what was "
        f"precomputed must be of this very cell. Received: {_received(memory_shape)}."
    )
    try:
        context_shape, weights_shape = cell.attention.compute_output_shape(
            queries_shape, memory_shape, values_shape, return_attention_scores=True
        )
    except ValueError as error:
        raise ValueError(f"{rule} {error}") from error
    if not sizes_agree(context_shape[-1], cell.context_size):
        raise ValueError(f"{rule} Its context has size {context_shape[-1]}, and must have {cell.context_size}.")
    return context_shape[-1], weights_shape


def _received(memory_shape: Any) -> str:
    if not isinstance(memory_shape, Mapping):
        return f"memory shape {memory_shape}"
    return ", ".join(f"memory[{name!r}] shape {tuple(shape)}" for name, shape in memory_shape.items())


def _checked_mask(owner: str, mask: Any, batch: int | None, size: int | None) -> Tensor | None:
    if mask is None:
        return None
    mask = as_mask(mask)
    check_position_mask(f"{owner}_mask", mask, owner, (batch, size, None))
    return mask


def _checked_lengths(name: str, lengths: Any, batch: int | None) -> Tensor | None:
    if lengths is None:
        return None
    lengths = as_lengths(lengths)
    dtype, shape = dtype_of(lengths), shape_of(lengths)
    if not keras.backend.is_int_dtype(dtype):
        raise TypeError(
            f"`{name}` must be integers. Received: {name} dtype {dtype}. Cast them with "
            f'`keras.ops.cast({name}, "int32")`; pass a boolean mask as `inputs_mask` or `memory_mask`.'
        )
    if not shapes_agree(shape, (batch,)):
        raise ValueError(
            f"`{name}` must have shape (B,), here ({batch},): one length for each example. "
            f"Received: {name} shape {shape}."
        )
    return lengths
