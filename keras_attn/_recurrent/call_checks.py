"""Validate the arguments and states of AttentionCell and AttentionRNN."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import keras

from .._checks.call_arguments import check_position_mask
from .._keras.build_placeholders import convert_lengths, convert_mask
from .._pooling.attention_layer import AttentionLayer
from .._shapes import dtype_of, merge_shapes, shape_of, shapes_agree, sizes_agree
from .._states.cache import KEYS_ENTRY, LENGTH_ENTRY, VALUES_ENTRY
from .._types import Shape, Tensor

When = Literal["before", "after"]

NOT_BUILT = "a cell that is not built yet"

_EXPECTED = {
    "inputs": "a tensor",
    "memory": "a tensor (B, Tk, Dv), or the result of `precompute`",
    "states": "a list of tensors, as `get_initial_state` returns",
}


class OutputShapes(NamedTuple):
    """Shapes of the results for inputs (B, T, Dx) and a memory (B, Tk, Dv)."""

    weights: Shape  # (B, T, Tk), or (B, H, T, Tk) with heads
    context_size: int | None
    output_size: int | None
    states: list[Shape]


class CallMasks(NamedTuple):
    """Valid lengths and masks of one call: for the memory, and in a loop for the input sequence."""

    valid_lens: Tensor | None = None  # (B,)
    memory_mask: Any = None  # (B, Tk)
    input_lens: Tensor | None = None  # (B,)
    inputs_mask: Tensor | None = None  # (B, T)


class CellStates(NamedTuple):
    """States of an AttentionCell: those of the wrapped cell, and two optional ones."""

    cell_states: list[Tensor]  # (B, units) each
    fed_output: Tensor | None  # (B, size), with input feeding
    weights: Tensor | None  # (B, Tk), with location-sensitive attention

    def as_list(self) -> list[Tensor]:
        """Return all states in the order of `AttentionCell.state_size`."""
        return [*self.cell_states, *(state for state in (self.fed_output, self.weights) if state is not None)]


def check_constructor(cell: Any, attention: Any, when: Any) -> None:
    """Check the cell, the attention layer and the order of an `AttentionCell`."""
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


def check_not_none(**arguments: Any) -> None:
    """Raise ValueError if an argument is None."""
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"`{name}` must be {_EXPECTED[name]}. Received: {name}=None.")


def check_not_cache_shape(owner: str, memory_shape: Any) -> None:
    """Raise ValueError if a memory is a key/value cache although the size Dv is needed."""
    if isinstance(memory_shape, Mapping):
        raise ValueError(
            f"The `memory` of {owner} must be a tensor (B, Tk, Dv), not the result of `precompute`. "
            f"Received: {_describe(memory_shape)}. Pass the memory itself."
        )


def add_time_axis(inputs_shape: Shape) -> Shape:
    """Return the shape (B, 1, Dx) of a sequence of one step, from the shape (B, Dx) of its inputs."""
    if len(inputs_shape) != 2:
        raise ValueError(
            f"`inputs` of a step must have shape (B, Dx). Received: inputs shape {tuple(inputs_shape)}. "
            "`AttentionRNN` takes sequences of inputs."
        )
    return inputs_shape[0], 1, inputs_shape[1]


def validate_call(cell: Any, inputs_shape: Shape, memory: Any, masks: CallMasks) -> tuple[CallMasks, OutputShapes]:
    """Check the arguments of a symbolic or eager call; return lengths and masks as tensors, and the output shapes."""
    shapes = compute_shapes(cell, inputs_shape, get_memory_shape(memory))
    batch, *_, num_steps, num_keys = shapes.weights
    # Keras passes the masks of a cache, which is a dict, as a dict.
    memory_mask = masks.memory_mask.get(KEYS_ENTRY) if isinstance(masks.memory_mask, Mapping) else masks.memory_mask
    checked_masks = CallMasks(
        _validate_lengths("valid_lens", masks.valid_lens, batch),
        _validate_mask("memory", memory_mask, batch, num_keys),
        _validate_lengths("input_lens", masks.input_lens, batch),
        _validate_mask("inputs", masks.inputs_mask, batch, num_steps),
    )
    return checked_masks, shapes


def get_memory_shape(memory: Any) -> Any:
    """Return the shape (B, Tk, Dv) of a memory, or a dict with the shapes of a key/value cache."""
    return {name: shape_of(x) for name, x in memory.items()} if isinstance(memory, Mapping) else shape_of(memory)


def compute_shapes(cell: Any, inputs_shape: Shape, memory_shape: Any) -> OutputShapes:
    """Check the shapes of inputs (B, T, Dx) and of a memory, and return the shapes of the results."""
    inputs_shape = tuple(inputs_shape)
    is_cache = isinstance(memory_shape, Mapping)
    memory_shape = {name: tuple(shape) for name, shape in memory_shape.items()} if is_cache else tuple(memory_shape)
    _check_inputs(cell, inputs_shape)
    batch = _check_memory(cell, inputs_shape, memory_shape)
    if cell.memory_size is None and not is_cache and None in (inputs_shape[-1], memory_shape[-1]):
        raise ValueError(
            "The last axes of `inputs` and `memory` must be known when a cell is built: weights have these sizes. "
            f"Received: inputs shape {inputs_shape}, {_describe(memory_shape)}. Pass the sizes to `keras.Input`."
        )
    context_size, weights_shape = _check_attention(cell, (*batch, inputs_shape[1], cell.query_size), memory_shape)
    states = cell.state_shapes(*batch, weights_shape[-1], context_size)
    return OutputShapes(weights_shape, context_size, cell.output_size_with(context_size), states)


def check_initial_state(shapes: list[Shape], expected: list[Shape], num_cell_states: int) -> None:
    """Check the shapes of initial states: none, the states of the wrapped cell, or all states."""
    if len(shapes) not in (0, num_cell_states, len(expected)):
        raise ValueError(
            f"`initial_state` must be the {num_cell_states} states of the Keras cell, or all {len(expected)} states. "
            f"Received: {len(shapes)} tensors."
        )
    for index, (shape, state_shape) in enumerate(zip(shapes, expected, strict=False)):
        if not shapes_agree(shape, state_shape):
            raise ValueError(
                f"`initial_state` must have the shapes of the states. Received: shape {shape} for state {index}, "
                f"expected {state_shape}."
            )


def _check_inputs(cell: Any, inputs_shape: Shape) -> None:
    if len(inputs_shape) != 3:
        raise ValueError(
            f"`inputs` must have shape (B, T, Dx). Received: inputs shape {inputs_shape}. Add or drop axes."
        )
    if inputs_shape[1] == 0:
        raise ValueError(f"`inputs` must have at least one time step. Received: inputs shape {inputs_shape}.")
    if not sizes_agree(inputs_shape[-1], cell.inputs_size):
        raise ValueError(
            f"`inputs` must have size {cell.inputs_size} on the last axis, as when the cell was built. "
            f"Received: inputs shape {inputs_shape}."
        )


def _check_memory(cell: Any, inputs_shape: Shape, memory_shape: Any) -> Shape:
    """Check rank, batch size and last axis of a memory or key/value cache; return (B,)."""
    shapes, rank = [memory_shape], 3
    if isinstance(memory_shape, Mapping):
        if set(memory_shape) not in ({KEYS_ENTRY, VALUES_ENTRY}, {KEYS_ENTRY, VALUES_ENTRY, LENGTH_ENTRY}):
            raise ValueError(
                f"`memory` must be a tensor (B, Tk, Dv), or the dict with {KEYS_ENTRY!r} and {VALUES_ENTRY!r} that "
                f"`precompute` returns. Received: {_describe(memory_shape)}."
            )
        if not cell.attention.built:
            check_not_cache_shape(NOT_BUILT, memory_shape)
        shapes, rank = [memory_shape[KEYS_ENTRY], memory_shape[VALUES_ENTRY]], cell.attention._time_axis(3) + 2
    if any(len(shape) != rank for shape in shapes):
        expected = "(B, Tk, Dv)" if rank == 3 else "(B, G, Tk, ...) in each entry"
        raise ValueError(f"`memory` must have shape {expected}. Received: {_describe(memory_shape)}. Add or drop axes.")
    if not all(shapes_agree(inputs_shape[:1], shape[:1]) for shape in shapes):
        raise ValueError(
            "`inputs` and `memory` must agree in B, their first axis. "
            f"Received: inputs shape {inputs_shape}, {_describe(memory_shape)}."
        )
    if not isinstance(memory_shape, Mapping) and not sizes_agree(memory_shape[-1], cell.memory_size):
        raise ValueError(
            f"`memory` must have size {cell.memory_size} on the last axis, as when the cell was built. "
            f"Received: {_describe(memory_shape)}."
        )
    return merge_shapes(inputs_shape[:1], *(shape[:1] for shape in shapes))


def _check_attention(cell: Any, queries_shape: Shape, memory_shape: Any) -> tuple[int | None, Shape]:
    """Return the size of the context, and the shape (B, T, Tk) or (B, H, T, Tk) of the weights."""
    values_shape = None if isinstance(memory_shape, Mapping) else memory_shape
    rule = (
        f"`memory` must fit `{cell.attention.name}`, whose query is a cell state of size {cell.query_size}. Received: "
        f"{_describe(memory_shape)}. Pass the memory that the cell was built for, or the result of this cell's "
        "`precompute`."
    )
    try:
        context_shape, weights_shape = cell.attention.compute_output_shape(
            queries_shape, memory_shape, values_shape, return_attention_scores=True
        )
    except ValueError as error:
        raise ValueError(f"{rule} {error}") from error
    if not sizes_agree(context_shape[-1], cell.context_size):
        raise ValueError(f"{rule} The context has size {context_shape[-1]}, expected {cell.context_size}.")
    return context_shape[-1], weights_shape


def _describe(memory_shape: Any) -> str:
    if not isinstance(memory_shape, Mapping):
        return f"memory shape {memory_shape}"
    return ", ".join(f"memory[{name!r}] shape {tuple(shape)}" for name, shape in memory_shape.items())


def _validate_mask(owner: str, mask: Any, batch: int | None, size: int | None) -> Tensor | None:
    if mask is None:
        return None
    mask = convert_mask(mask)
    check_position_mask(f"{owner}_mask", mask, owner, (batch, size, None))
    return mask


def _validate_lengths(name: str, lengths: Any, batch: int | None) -> Tensor | None:
    if lengths is None:
        return None
    lengths = convert_lengths(lengths)
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
