"""Recurrent cell with attention to a memory at each step."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_call_flag, check_flag, check_positive_integer
from .._keras.call_errors import CallErrorMixin
from .._keras.private_api import LargestOutputMixin
from .._keras.projections import kernel_config, make_policy_map, make_projection, set_kernel_options
from .._layers.location_sensitive import LocationSensitiveAttention
from .._pooling.attention_layer import AttentionLayer
from .._shapes import accumulation_dtype, dtype_of, merge_shapes, shape_of, shapes_agree
from .._states.cache import KEYS_ENTRY
from .._types import Shape, Tensor
from . import call_checks, keras_cells
from .call_checks import CallMasks, CellStates, OutputShapes, When


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionCell(CallErrorMixin, LargestOutputMixin, keras.layers.Layer):
    """Recurrent cell with attention to a memory at each step: the decoder of Bahdanau or of Luong.

    With the input `x`, the states `s` and the context `c = attention(query, memory)`, a step computes the output `o`:

    - `when="before"`: the previous state is the query for `c`; then `o, s = cell([c; x], s)`.
    - `when="after"`: `h, s = cell(x, s)`; then `h` is the query for `c`, and `o = [c; h]`.

    With an `attention_size` the output is `tanh(W_c [c; o])` and `tanh(W_c [c; h])`. `AttentionRNN` runs a cell over
    sequences. To decode, call the cell itself: a call is one step.

    Args:
        cell: Any recurrent cell of Keras, such as `GRUCell`, `LSTMCell` or `StackedRNNCells`.
        attention: An attention layer, such as `AdditiveAttention`, `MultiHeadAttention` or a custom subclass.
        when: Whether to attend `"before"` or `"after"` the step of the cell.
        attention_size: Output size of `W_c`, a dense layer without bias on the context and the output of the
            cell. None to omit it.
        activation: The activation after `W_c`.
        input_feeding: Whether to append the previous output to the input. The output is then an additional state.
        kernel_initializer: Initializer of the kernel of `W_c`.
        kernel_regularizer: Regularizer of the kernel of `W_c`, or None.
        kernel_constraint: Constraint on the kernel of `W_c`, or None.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Floats (B, Dx).
        states: A flat list: the states of `cell`, (B, units) each; with `input_feeding` the previous output; and with a
            `LocationSensitiveAttention` its weights (B, Tk). `get_initial_state` returns the initial states.
        memory: Floats (B, Tk, Dv), used as keys and as values; or the result of `precompute(memory)`, which saves work
            at each step.
        valid_lens: Valid lengths, integers (B,): key `j` is masked unless `j < valid_lens`.
        memory_mask: Booleans (B, Tk). Unless given, Keras fills it from the mask that `memory` carries.
        return_attention_scores: Whether to return the weights as well.
        training: Whether dropout is active.

    Returns:
        A pair of the output (B, size) and the list of the next states. With `return_attention_scores=True`, a pair of
        this pair and the weights (B, Tk), or (B, H, Tk) with heads.

    Masking:
        As in the attention layer: padding of the memory has no effect. The context of a fully masked query is zeros.

    Raises:
        TypeError: If `cell` is not a recurrent cell, or `attention` not an attention layer.
        ValueError: If ranks or sizes do not match.

    Example:
        >>> cell = AttentionCell(keras.layers.GRUCell(32), AdditiveAttention(32))
        >>> outputs = AttentionRNN(cell)(inputs, memory, valid_lens)
        >>> output, states = cell(inputs[:, 0], cell.get_initial_state(batch_size=2), cell.precompute(memory))

    Source: `"before"`: Bahdanau, Cho and Bengio 2014, appendix A.2.2; `"after"`, `W_c` and input feeding: Luong, Pham
        and Manning 2015, equation 5 and section 3.3. `AttentionWrapper` of TensorFlow Addons is `when="after"` with
        `input_feeding=True` and `attention_size`; its default `attention_layer` has `activation=None`.
    """

    CALL_EXAMPLE = "`cell(inputs, states, memory)`"

    def __init__(
        self,
        cell: Any,
        attention: AttentionLayer,
        *,
        when: When = "before",
        attention_size: int | None = None,
        activation: Any = "tanh",
        input_feeding: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        # Without autocast, because the cumulative weights of location-sensitive attention are sums: keep float32.
        super().__init__(**{"autocast": False, **kwargs})
        call_checks.check_constructor(cell, attention, when)
        self.supports_masking = True
        self.cell, self.attention, self.when = cell, attention, when
        if attention_size is not None:
            attention_size = check_positive_integer("attention_size", attention_size)
        self.attention_size = attention_size
        self.activation = keras.activations.get(activation)
        self.input_feeding = check_flag("input_feeding", input_feeding)
        set_kernel_options(self, kernel_initializer, kernel_regularizer, kernel_constraint)
        # Dx, Dv of the memory and the size of the context; None until the cell is built.
        self.inputs_size: int | None = None
        self.memory_size: int | None = None
        self.context_size: int | None = None
        self.W_c = None if self.attention_size is None else make_projection(self, "W_c", self.attention_size)

    def build(self, inputs_shape: Any, states_shape: Any = None, memory_shape: Any = None) -> None:
        call_checks.check_not_none(memory=memory_shape)
        call_checks.check_not_cache_shape(call_checks.NOT_BUILT, memory_shape)
        memory_shape, sequence_shape = tuple(memory_shape), call_checks.add_time_axis(inputs_shape)
        shapes = call_checks.compute_shapes(self, sequence_shape, memory_shape)
        batch = shapes.weights[:1]
        if not self.attention.built:
            self.attention.build((*batch, 1, self.query_size), memory_shape, memory_shape)
        self.inputs_size, self.memory_size = sequence_shape[-1], memory_shape[-1]
        self.context_size = shapes.context_size
        if not self.cell.built:
            self.cell.build((*batch, self._cell_input_size(inputs_shape[-1])))
            self.cell.built = True
        if self.W_c is not None:
            self.W_c.build((*batch, (self.context_size or 0) + keras_cells.output_size(self.cell)))

    @property
    def output_size(self) -> int | None:
        """Size of the output; None if it depends on the memory and the cell is not built."""
        return self.output_size_with(self.context_size)

    def output_size_with(self, context_size: int | None) -> int | None:
        """Return the size of the output for contexts of size `context_size`."""
        if self.attention_size is not None:
            return self.attention_size
        size = keras_cells.output_size(self.cell)
        if self.when == "before":
            return size
        return None if context_size is None else context_size + size

    @property
    def state_size(self) -> list[int | None]:
        """Sizes of the states; None for a size that depends on the memory."""
        return [size for _, size in self.state_shapes(None, None, self.context_size)]

    def state_shapes(self, batch: int | None, num_keys: int | None, context_size: int | None) -> list[Shape]:
        """Return the shapes of the states for a memory of `num_keys` keys and contexts of size `context_size`."""
        fed_sizes = [self.output_size_with(context_size)] if self.input_feeding else []
        weight_sizes = [num_keys] if self._has_weight_state else []
        return [(batch, size) for size in (*keras_cells.state_sizes(self.cell), *fed_sizes, *weight_sizes)]

    @property
    def query_size(self) -> int:
        """Size Dq of the query: the hidden state, or the output of the Keras cell."""
        if self.when == "after":
            return keras_cells.output_size(self.cell)
        return keras_cells.state_sizes(self.cell)[keras_cells.hidden_state_index(self.cell)]

    @property
    def _has_weight_state(self) -> bool:
        return isinstance(self.attention, LocationSensitiveAttention)

    @property
    def state_dtypes(self) -> list[str]:
        """Dtypes of the states; float32 at least for previous weights, which may be sums."""
        dtypes = [self.cell.compute_dtype] * len(keras_cells.state_sizes(self.cell))
        weight_dtypes = [accumulation_dtype(self.compute_dtype)] * self._has_weight_state
        return dtypes + [self.compute_dtype] * self.input_feeding + weight_dtypes

    def get_initial_state(self, batch_size: Any = None, memory: Any = None) -> list[Tensor]:
        """Return the initial states: those of `cell`, then zeros.

        Args:
            batch_size: B; None for the batch size of the memory.
            memory: The memory, or the result of `precompute`. Required without `batch_size`, and if weights are a
                state.
        """
        if memory is None and (batch_size is None or self._has_weight_state):
            raise ValueError(
                "`memory` must be passed if `batch_size` is None, or if its length Tk is the size of a state. "
                f"Received: memory=None, batch_size={batch_size}."
            )
        shape: Any = () if memory is None else ops.shape(memory[KEYS_ENTRY] if isinstance(memory, Mapping) else memory)
        batch_size = shape[0] if batch_size is None else batch_size
        states = keras_cells.make_initial_states(self.cell, batch_size)
        if self.input_feeding:
            if self.output_size is None:
                raise ValueError(f"`{self.name}` must be built first, or have `attention_size`: its output is a state.")
            states.append(ops.zeros((batch_size, self.output_size)))
        if self._has_weight_state:
            states.append(ops.zeros((batch_size, shape[1])))
        return [ops.cast(state, dtype) for state, dtype in zip(states, self.state_dtypes, strict=True)]

    def _split_states(self, states: Any, expected: list[Shape]) -> CellStates:
        flat = list(keras.tree.flatten(states))
        shapes = [shape_of(state) for state in flat]
        if len(shapes) != len(expected) or not all(map(shapes_agree, shapes, expected)):
            raise ValueError(
                f"`states` must be a list of {len(expected)} tensors of shapes {expected}, as `get_initial_state` "
                "returns: the states of the Keras cell, the previous output, the previous weights. "
                f"Received: {len(shapes)} tensors of shapes {shapes}."
            )
        weights = flat.pop() if self._has_weight_state else None
        fed_output = flat.pop() if self.input_feeding else None
        return CellStates(flat, fed_output, weights)

    def dropout_for(self, inputs: Tensor, training: bool | None) -> Any:
        """Return a context in which the dropout masks of `cell` are the same at all steps of inputs (B, T, Dx)."""
        size = self._cell_input_size(inputs.shape[-1])
        example = ops.zeros((ops.shape(inputs)[0], size), self.cell.compute_dtype)
        return keras_cells.fixed_dropout_masks(self.cell, example, training)

    def precompute(self, memory: Tensor) -> dict[str, Tensor]:
        """Compute the tensors that depend only on the memory. Steps accept the result in place of the memory.

        Args:
            memory: Floats (B, Tk, Dv). Padding must be finite if a gradient is taken through it.

        Returns:
            A dict with the tensors `"projected_keys"` and `"projected_values"`.
        """
        if not self.built:
            raise ValueError(
                f"`{self.name}` must be built before `precompute`: call it once, or call "
                "`build(inputs_shape, None, memory_shape)`."
            )
        call_checks.check_not_none(memory=memory)
        memory_shape = call_checks.get_memory_shape(memory)
        call_checks.check_not_cache_shape("`precompute`", memory_shape)
        call_checks.compute_shapes(self, (None, 1, self.inputs_size), memory_shape)
        cache: dict[str, Tensor] = self.attention.precompute(memory, memory)
        return cache

    def call(
        self,
        inputs: Tensor,
        states: Any,
        memory: Any,
        valid_lens: Any = None,
        *,
        memory_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        old_states, masks, _ = self._check_call(inputs, states, memory, CallMasks(valid_lens, memory_mask))
        inputs = ops.cast(inputs, self.compute_dtype)
        if old_states.fed_output is not None:
            inputs = ops.concatenate([inputs, ops.cast(old_states.fed_output, self.compute_dtype)], axis=-1)
        returns_weights = check_call_flag("return_attention_scores", return_attention_scores)
        options = {
            "valid_lens": masks.valid_lens,
            "keys_mask": masks.memory_mask,
            "return_attention_scores": returns_weights or self._has_weight_state,
            "training": training,
        }
        if old_states.weights is not None:
            options["previous_weights"] = old_states.weights
        if self.when == "before":
            context, weights = self._attend_to_memory(
                old_states.cell_states[keras_cells.hidden_state_index(self.cell)], memory, options
            )
            inputs = ops.concatenate([context, inputs], axis=-1)
            output, cell_states = self._step_cell(inputs, old_states.cell_states, training)
        else:
            output, cell_states = self._step_cell(inputs, old_states.cell_states, training)
            context, weights = self._attend_to_memory(output, memory, options)
        output = self._combine_context(context, output)
        next_weights = None if old_states.weights is None else self.attention.next_weights(old_states.weights, weights)
        new_states = CellStates(cell_states, output if self.input_feeding else None, next_weights)
        # Each state keeps its dtype, or a compiled loop would reject the step.
        pairs = zip(new_states.as_list(), old_states.as_list(), strict=True)
        result = output, [ops.cast(new_state, dtype_of(old_state)) for new_state, old_state in pairs]
        return (result, ops.cast(weights, self.compute_dtype)) if returns_weights else result

    def compute_output_spec(
        self, inputs: Tensor, states: Any, memory: Any, valid_lens: Any = None, **options: Any
    ) -> Any:
        masks = CallMasks(valid_lens, options.get("memory_mask"))
        old_states, _, shapes = self._check_call(inputs, states, memory, masks)
        new_states = [
            keras.KerasTensor(merge_shapes(shape, shape_of(state)), dtype_of(state))
            for shape, state in zip(shapes.states, old_states.as_list(), strict=True)
        ]
        batch, *heads, _, num_keys = shapes.weights
        result = keras.KerasTensor((batch, shapes.output_size), self.compute_dtype), new_states
        weights = keras.KerasTensor((batch, *heads, num_keys), self.compute_dtype)
        returns_weights = check_call_flag("return_attention_scores", options.get("return_attention_scores"))
        return (result, weights) if returns_weights else result

    def compute_output_shape(
        self, inputs_shape: Any, states_shape: Any, memory_shape: Any, *, return_attention_scores: bool = False
    ) -> Any:
        shapes = call_checks.compute_shapes(self, call_checks.add_time_axis(inputs_shape), memory_shape)
        batch, *heads, _, num_keys = shapes.weights
        result = (batch, shapes.output_size), shapes.states
        return (result, (batch, *heads, num_keys)) if return_attention_scores else result

    def _check_call(
        self, inputs: Tensor, states: Any, memory: Any, masks: CallMasks
    ) -> tuple[CellStates, CallMasks, OutputShapes]:
        """Check the arguments of a symbolic or eager call; return states, masks and output shapes."""
        call_checks.check_not_none(inputs=inputs, states=states, memory=memory)
        masks, shapes = call_checks.validate_call(self, call_checks.add_time_axis(shape_of(inputs)), memory, masks)
        return self._split_states(states, shapes.states), masks, shapes

    def _attend_to_memory(self, query: Tensor, memory: Any, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Return the context (B, Dv) of a query (B, Dq), and weights (B, Tk) or (B, H, Tk) if requested."""
        values = None if isinstance(memory, Mapping) else memory
        result = self.attention(ops.expand_dims(query, 1), memory, values, **options)
        context, weights = result if options["return_attention_scores"] else (result, None)
        context = ops.cast(ops.squeeze(context, 1), self.compute_dtype)
        return context, None if weights is None else ops.squeeze(weights, -2)

    def _cell_input_size(self, size: int) -> int:
        fed_size = self.output_size if self.input_feeding else 0
        context_size = self.context_size if self.when == "before" else 0
        return size + (fed_size or 0) + (context_size or 0)

    def _step_cell(self, inputs: Tensor, states: list[Tensor], training: bool | None) -> tuple[Tensor, list[Tensor]]:
        """Run one step of the Keras cell; return its output (B, units) and a flat list of its next states."""
        output, states = self.cell(inputs, keras_cells.pack_states(self.cell, states), training=training)
        return ops.cast(output, self.compute_dtype), list(keras.tree.flatten(states))

    def _combine_context(self, context: Tensor, output: Tensor) -> Tensor:
        if self.W_c is None and self.when == "before":
            return output
        combined = ops.concatenate([context, output], axis=-1)
        return combined if self.W_c is None else self.activation(self.W_c(combined))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """Return None: the output of one step has no time axis."""

    def get_config(self) -> dict[str, Any]:
        parts = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in ("cell", "attention")}
        for part in parts.values():
            part.pop("build_config", None)  # `build` of this layer builds both
        config = {
            **super().get_config(),
            **parts,
            "when": self.when,
            "attention_size": self.attention_size,
            "activation": keras.activations.serialize(self.activation),
            "input_feeding": self.input_feeding,
            **kernel_config(self),
        }
        quantized = self.W_c is not None and self.W_c.quantization_mode is not None
        policies = make_policy_map(self) if quantized else None
        return config if policies is None else {**config, "dtype": keras.dtype_policies.serialize(policies)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AttentionCell":
        """Create a cell from the result of `get_config`."""
        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in ("cell", "attention")}
        return cls(**{**config, **parts})
