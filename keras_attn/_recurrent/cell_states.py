"""States of an AttentionCell: sizes, dtypes, initial values."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from .._keras.private_api import VariedOutputs
from .._layers.location_sensitive import LocationSensitiveAttention
from .._shapes import exact_dtype, shape_of, shapes_agree
from .._states.cache import PROJECTED
from .._types import Shape, Tensor
from .keras_cells import first_states, hidden_place, output_size, state_sizes


class States(NamedTuple):
    """The states of a cell: those of the cell in it, and two that it may not have."""

    of_cell: list[Tensor]
    fed: Tensor | None
    weights: Tensor | None

    def flat(self) -> list[Tensor]:
        """All of them, one after another."""
        return [*self.of_cell, *(each for each in (self.fed, self.weights) if each is not None)]


class CellStates(VariedOutputs, keras.layers.Layer):
    """The part of an `AttentionCell` that knows its states and sizes."""

    cell: Any
    attention: Any
    when: str
    attention_size: int | None
    input_feeding: bool
    context_size: int | None

    @property
    def output_size(self) -> int | None:
        """The size of the output; None if it depends on a memory that is not known yet."""
        return self.output_size_with(self.context_size)

    def output_size_with(self, context_size: int | None) -> int | None:
        """The size of the output for contexts of a given size."""
        if self.attention_size is not None:
            return self.attention_size
        size = output_size(self.cell)
        if self.when == "before":
            return size
        return None if context_size is None else context_size + size

    @property
    def state_size(self) -> list[int | None]:
        """The sizes of the states; None for one that depends on the memory."""
        return [size for _, size in self.state_shapes(None, None, self.context_size)]

    def state_shapes(self, batch: int | None, places: int | None, context_size: int | None) -> list[Shape]:
        """The shapes of the states for a memory of `places` keys and for contexts of `context_size`."""
        fed = [self.output_size_with(context_size)] if self.input_feeding else []
        weights = [places] if self._reads_weights else []
        return [(batch, size) for size in (*state_sizes(self.cell), *fed, *weights)]

    @property
    def query_size(self) -> int:
        """The size of the query."""
        return state_sizes(self.cell)[hidden_place(self.cell)] if self.when == "before" else output_size(self.cell)

    @property
    def _reads_weights(self) -> bool:
        return isinstance(self.attention, LocationSensitiveAttention)

    @property
    def state_dtypes(self) -> list[str]:
        """The dtypes of the states. Previous weights may be sums, which need float32."""
        dtypes = [self.cell.compute_dtype] * len(state_sizes(self.cell))
        exact = [exact_dtype(self.compute_dtype)]
        return dtypes + [self.compute_dtype] * self.input_feeding + exact * self._reads_weights

    def get_initial_state(self, batch_size: Any = None, memory: Any = None) -> list[Tensor]:
        """Returns the first states: the initial states of `cell`, and zeros.

        Args:
            batch_size: B; by default that of the memory.
            memory: The memory, or the result of `precompute`. Needed if `batch_size` is not given, or if weights are a
                state.
        """
        if memory is None and (batch_size is None or self._reads_weights):
            raise ValueError(
                "`memory` must be given where its length is the size of a state, or where `batch_size` is not given. "
                f"Received: memory=None, batch_size={batch_size}."
            )
        shape: Any = () if memory is None else ops.shape(memory[PROJECTED] if isinstance(memory, Mapping) else memory)
        batch_size = shape[0] if batch_size is None else batch_size
        states = first_states(self.cell, batch_size)
        if self.input_feeding:
            if self.output_size is None:
                raise ValueError(f"`{self.name}` must be built first, or have an `attention_size`: its output is fed.")
            states.append(ops.zeros((batch_size, self.output_size)))
        if self._reads_weights:
            states.append(ops.zeros((batch_size, shape[1])))
        return [ops.cast(state, dtype) for state, dtype in zip(states, self.state_dtypes, strict=True)]

    def _split(self, states: Any, wanted: list[Shape]) -> States:
        flat = list(keras.tree.flatten(states))
        shapes = [shape_of(state) for state in flat]
        if len(shapes) != len(wanted) or not all(map(shapes_agree, shapes, wanted)):
            raise ValueError(
                f"`states` must be a list of {len(wanted)} tensors of shapes {wanted}, as `get_initial_state` gives "
                "them: those of the cell, the output before, the weights so far. "
                f"Received: {len(shapes)} tensors of shapes {shapes}."
            )
        weights = flat.pop() if self._reads_weights else None
        fed = flat.pop() if self.input_feeding else None
        return States(flat, fed, weights)


def check_first_states(shapes: list[Shape], wanted: list[Shape], number_of_cell: int) -> None:
    """Checks the shapes of states to begin with: those of the cell in the cell, or all that are wanted."""
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
