"""A recurrent cell that attends to a memory at each step."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_flag, check_positive_integer, check_switch
from .._keras.call_errors import CheckedCalls
from .._keras.private_api import VariedOutputs
from .._keras.projections import kernel_config, policy_with_quantized_sublayers, projection, set_kernel_options
from .._layers.location_sensitive import LocationSensitiveAttention
from .._pooling.attention_layer import AttentionLayer
from .._shapes import dtype_of, exact_dtype, merge_shapes, shape_of, shapes_agree
from .._states.cache import PROJECTED
from .._types import Shape, Tensor
from .call_checks import (
    NOT_BUILT,
    Masking,
    Shapes,
    States,
    When,
    check_not_precomputed,
    check_parts,
    check_passed,
    checked,
    of_one_step,
    shapes_of,
    shapes_of_memory,
)
from .keras_cells import dropout_drawn_once, first_states, hidden_place, output_size, packed, state_sizes


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionCell(CheckedCalls, VariedOutputs, keras.layers.Layer):
    """A recurrent cell that attends to a memory at each step: the decoder of Bahdanau, or that of Luong.

    With the input `x`, the states `s` and the context `c = attention(query, memory)`, a step gives the output `o`:

    - `when="before"`: the previous state is the query for `c`; then `o, s = cell([c; x], s)`.
    - `when="after"`: `h, s = cell(x, s)`; then `h` is the query for `c`, and `o = [c; h]`.

    With an `attention_size` the output is `tanh(W_c [c; o])` and `tanh(W_c [c; h])`. `AttentionRNN` runs a cell over
    sequences. To decode, call the cell itself: it makes one step.

    Args:
        cell: Any recurrent cell of Keras, such as `GRUCell`, `LSTMCell` or `StackedRNNCells`.
        attention: An attention layer, such as `AdditiveAttention`, `MultiHeadAttention` or a score of your own.
        when: Whether to attend `"before"` or `"after"` the step of the cell.
        attention_size: Size of the output of a dense layer without bias, `W_c`, over the context and the output of the
            cell. None for no such layer.
        activation: The activation after `W_c`.
        input_feeding: Whether the previous output is appended to the input. It is then one more state.
        kernel_initializer: Initializer of the kernel of `W_c`.
        kernel_regularizer: Regularizer of that kernel, or None.
        kernel_constraint: Constraint on that kernel, or None.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Floats (B, Dx).
        states: A flat list: the states of `cell`, (B, units) each; with `input_feeding` the previous output; and with a
            `LocationSensitiveAttention` its weights (B, Tk). `get_initial_state` returns the first states.
        memory: Floats (B, Tk, Dv), used as keys and as values; or the result of `precompute(memory)`, which saves work
            at each step.
        valid_lens: Integers (B,). Key `j` takes part if `j < valid_lens`.
        memory_mask: Booleans (B, Tk). Unless given, Keras fills it from the mask that `memory` carries.
        return_attention_scores: Whether to return the weights as well.
        training: Whether dropout acts.

    Returns:
        A pair of the output (B, size) and the list of the next states. With `return_attention_scores=True`, a pair of
        that pair and the weights (B, Tk), or (B, H, Tk) with heads.

    Masking:
        That of the attention: padding of the memory has no effect. If a memory has no valid key, the context is zeros.

    Raises:
        TypeError: If `cell` or `attention` has another type.
        ValueError: If ranks or sizes do not agree.

    Example:
        >>> cell = AttentionCell(keras.layers.GRUCell(32), AdditiveAttention(32))
        >>> outputs = AttentionRNN(cell)(inputs, memory, valid_lens)
        >>> output, states = cell(inputs[:, 0], cell.get_initial_state(batch_size=2), cell.precompute(memory))

    Source: `"before"`: Bahdanau, Cho and Bengio 2014, appendix A.2.2; `"after"`, `W_c` and input feeding: Luong, Pham
        and Manning 2015, equation 5 and section 3.3. `AttentionWrapper` of TensorFlow Addons is `when="after"` with
        `input_feeding=True` and `attention_size`; its default `attention_layer` has `activation=None`.
    """

    CALLED = "`cell(inputs, states, memory)`"

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
        super().__init__(**{"autocast": False, **kwargs})  # weights so far may be sums, and keep float32
        check_parts(cell, attention, when)
        self.supports_masking = True
        self.cell, self.attention, self.when = cell, attention, when
        if attention_size is not None:
            attention_size = check_positive_integer("attention_size", attention_size)
        self.attention_size = attention_size
        self.activation = keras.activations.get(activation)
        self.input_feeding = check_flag("input_feeding", input_feeding)
        set_kernel_options(self, kernel_initializer, kernel_regularizer, kernel_constraint)
        # Dx, Dm and the size of the context, once it is built
        self.inputs_size: int | None = None
        self.memory_size: int | None = None
        self.context_size: int | None = None
        self.W_c = None if self.attention_size is None else projection(self, "W_c", self.attention_size)

    def build(self, inputs_shape: Any, states_shape: Any = None, memory_shape: Any = None) -> None:
        check_passed(memory=memory_shape)
        check_not_precomputed(NOT_BUILT, memory_shape)
        memory_shape, of_inputs = tuple(memory_shape), of_one_step(inputs_shape)
        shapes = shapes_of(self, of_inputs, memory_shape)
        batch = shapes.weights[:1]
        if not self.attention.built:
            self.attention.build((*batch, 1, self.query_size), memory_shape, memory_shape)
        self.inputs_size, self.memory_size, self.context_size = of_inputs[-1], memory_shape[-1], shapes.context_size
        if not self.cell.built:
            self.cell.build((*batch, self._size_of_cell_inputs(inputs_shape[-1])))
            self.cell.built = True
        if self.W_c is not None:
            self.W_c.build((*batch, (self.context_size or 0) + output_size(self.cell)))

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

    def dropout_for(self, inputs: Tensor, training: bool | None) -> Any:
        """Returns a context in which the dropout of `cell` drops the same units at all steps of inputs (B, T, Dx)."""
        size = self._size_of_cell_inputs(inputs.shape[-1])
        example = ops.zeros((ops.shape(inputs)[0], size), self.cell.compute_dtype)
        return dropout_drawn_once(self.cell, example, training)

    def precompute(self, memory: Tensor) -> dict[str, Tensor]:
        """Computes what depends on the memory alone. Each step takes the result in place of the memory.

        Args:
            memory: Floats (B, Tk, Dv). Padding should be finite, unless no gradient is taken through it.

        Returns:
            A dict with the tensors `"projected_keys"` and `"projected_values"`.
        """
        if not self.built:
            raise ValueError(
                f"`{self.name}` must be built before `precompute`: call it once, or its method "
                "`build(inputs_shape, None, memory_shape)`."
            )
        check_passed(memory=memory)
        memory_shape = shapes_of_memory(memory)
        check_not_precomputed("`precompute`", memory_shape)
        shapes_of(self, (None, 1, self.inputs_size), memory_shape)
        state: dict[str, Tensor] = self.attention.precompute(memory, memory)
        return state

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
        before, masking, _ = self._checked(inputs, states, memory, Masking(valid_lens, memory_mask))
        inputs = ops.cast(inputs, self.compute_dtype)
        if before.fed is not None:
            inputs = ops.concatenate([inputs, ops.cast(before.fed, self.compute_dtype)], axis=-1)
        returns_weights = check_switch("return_attention_scores", return_attention_scores)
        options = {
            "valid_lens": masking.valid_lens,
            "keys_mask": masking.memory_mask,
            "return_attention_scores": returns_weights or self._reads_weights,
            "training": training,
        }
        if before.weights is not None:
            options["previous_weights"] = before.weights
        if self.when == "before":
            context, weights = self._attended(before.of_cell[hidden_place(self.cell)], memory, options)
            output, of_cell = self._moved(ops.concatenate([context, inputs], axis=-1), before.of_cell, training)
        else:
            output, of_cell = self._moved(inputs, before.of_cell, training)
            context, weights = self._attended(output, memory, options)
        output = self._joined(context, output)
        so_far = None if before.weights is None else self.attention.next_weights(before.weights, weights)
        after = States(of_cell, output if self.input_feeding else None, so_far)
        result = output, [ops.cast(new, dtype_of(old)) for new, old in zip(after.flat(), before.flat(), strict=True)]
        return (result, ops.cast(weights, self.compute_dtype)) if returns_weights else result

    def compute_output_spec(
        self, inputs: Tensor, states: Any, memory: Any, valid_lens: Any = None, **options: Any
    ) -> Any:
        given = Masking(valid_lens, options.get("memory_mask"))
        before, _, shapes = self._checked(inputs, states, memory, given)
        after = [
            keras.KerasTensor(merge_shapes(shape, shape_of(state)), dtype_of(state))
            for shape, state in zip(shapes.states, before.flat(), strict=True)
        ]
        batch, *heads, _, places = shapes.weights
        result = keras.KerasTensor((batch, shapes.output_size), self.compute_dtype), after
        weights = keras.KerasTensor((batch, *heads, places), self.compute_dtype)
        returns_weights = check_switch("return_attention_scores", options.get("return_attention_scores"))
        return (result, weights) if returns_weights else result

    def compute_output_shape(
        self, inputs_shape: Any, states_shape: Any, memory_shape: Any, *, return_attention_scores: bool = False
    ) -> Any:
        shapes = shapes_of(self, of_one_step(inputs_shape), memory_shape)
        batch, *heads, _, places = shapes.weights
        result = (batch, shapes.output_size), shapes.states
        return (result, (batch, *heads, places)) if return_attention_scores else result

    def _checked(self, inputs: Tensor, states: Any, memory: Any, given: Masking) -> tuple[States, Masking, Shapes]:
        """Checks what a call, symbolic or not, was given."""
        check_passed(inputs=inputs, states=states, memory=memory)
        masking, shapes = checked(self, of_one_step(shape_of(inputs)), memory, given)
        return self._split(states, shapes.states), masking, shapes

    def _attended(self, query: Tensor, memory: Any, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        """The context (B, Dv) of a query (B, Dq), and the weights where they are wanted."""
        values = None if isinstance(memory, Mapping) else memory
        found = self.attention(ops.expand_dims(query, 1), memory, values, **options)
        context, weights = found if options["return_attention_scores"] else (found, None)
        context = ops.cast(ops.squeeze(context, 1), self.compute_dtype)
        return context, None if weights is None else ops.squeeze(weights, -2)

    def _size_of_cell_inputs(self, size: int) -> int:
        fed = self.output_size if self.input_feeding else 0
        context = self.context_size if self.when == "before" else 0
        return size + (fed or 0) + (context or 0)

    def _moved(self, inputs: Tensor, states: list[Tensor], training: bool | None) -> tuple[Tensor, list[Tensor]]:
        """What a step of the cell gives, and its next states one after another."""
        output, states = self.cell(inputs, packed(self.cell, states), training=training)
        return ops.cast(output, self.compute_dtype), list(keras.tree.flatten(states))

    def _joined(self, context: Tensor, output: Tensor) -> Tensor:
        if self.W_c is None and self.when == "before":
            return output
        both = ops.concatenate([context, output], axis=-1)
        return both if self.W_c is None else self.activation(self.W_c(both))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """None: one step has no axis of time."""

    def get_config(self) -> dict[str, Any]:
        parts = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in ("cell", "attention")}
        for part in parts.values():
            part.pop("build_config", None)  # this layer builds both
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
        policies = policy_with_quantized_sublayers(self) if quantized else None
        return config if policies is None else {**config, "dtype": keras.dtype_policies.serialize(policies)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AttentionCell":
        """The cell with the arguments of `get_config`."""
        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in ("cell", "attention")}
        return cls(**{**config, **parts})
