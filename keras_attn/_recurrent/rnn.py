"""The loop around a recurrent cell that attends to a memory."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_flag, check_switch
from .._keras.call_errors import CheckedCalls
from .._keras.private_api import VariedOutputs, loop_over_time, set_keras_mask
from .._maths.masks import hide, intersect, lengths_mask
from .._shapes import dtype_of, shape_of
from .._types import Shape, Tensor
from .call_checks import Masking, Shapes, check_first_states, check_passed, checked, shapes_of
from .cell import AttentionCell
from .keras_cells import draws_of_steps, state_sizes

_OF_KERAS = ("go_backwards", "stateful", "unroll", "zero_output_for_mask")


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionRNN(CheckedCalls, VariedOutputs, keras.layers.RNN):
    """Runs an `AttentionCell` over sequences: a recurrent decoder with attention.

    What depends on the memory alone is computed once, before the loop.

    Args:
        cell: The cell.
        return_sequences: Whether to return the outputs of all steps, rather than only the last.
        return_state: Whether to return the states after the last step as well.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Floats (B, T, Dx).
        memory: Floats (B, Tk, Dv), or the result of `cell.precompute(memory)`.
        valid_lens: Integers (B,). Key `j` of the memory takes part if `j < valid_lens`.
        input_lens: Integers (B,). Step `t` takes part if `t < input_lens`.
        initial_state: The first states, as a tensor or a list: those of the Keras cell inside, or all of them. None for
            `cell.get_initial_state`.
        inputs_mask: Booleans (B, T). Unless given, Keras fills it from the mask that `inputs` carries.
        memory_mask: Booleans (B, Tk), likewise from `memory`.
        return_attention_scores: Whether to return the weights of all steps as well.
        training: Whether dropout acts. The dropout of the Keras cell drops the same units at each step; that of the
            attention weights is drawn anew at each step.

    Returns:
        Outputs (B, T, size), or the last output (B, size); with `return_state=True` a tuple of the outputs and the
        states. With `return_attention_scores=True`, a pair of that and the weights (B, T, Tk), or (B, H, T, Tk) with
        heads.

    Masking:
        A masked step leaves the states unchanged, and its output and weights are zeros. The last output is that of the
        last step that is not masked, or zeros. NaN in masked steps, or in the padding of the memory, reaches neither
        outputs nor gradients.

    Raises:
        TypeError: If lengths are not integers or a mask is not boolean.
        ValueError: If ranks or sizes do not agree.

    Example:
        >>> decode = AttentionRNN(AttentionCell(keras.layers.GRUCell(32), AdditiveAttention(32)))
        >>> outputs, weights = decode(embedded, encoded, valid_lens, return_attention_scores=True)

    Source: that of `AttentionCell`.
    """

    CALLED = "`layer(inputs, memory)`"

    def __init__(
        self, cell: AttentionCell, return_sequences: bool = True, return_state: bool = False, **kwargs: Any
    ) -> None:
        if not isinstance(cell, AttentionCell):
            raise TypeError(
                "`cell` must be an `AttentionCell`; `keras.layers.RNN` runs others. "
                f"Received: cell of type {type(cell).__name__}."
            )
        if refused := [name for name in _OF_KERAS if name in kwargs]:
            raise ValueError(f"`AttentionRNN` has no {', '.join(refused)}, as `keras.layers.RNN` has. Leave it out.")
        # as in the cell: states of weights so far may be sums, and keep float32
        kwargs = {"autocast": False, **kwargs}
        returns = {"return_sequences": return_sequences, "return_state": return_state}
        super().__init__(cell, **{name: check_flag(name, value) for name, value in returns.items()}, **kwargs)

    def build(self, inputs_shape: Any, memory_shape: Any = None) -> None:
        if not self.cell.built:
            check_passed(memory=memory_shape)
            shapes_of(self.cell, inputs_shape, memory_shape)
            self.cell.build((inputs_shape[0], *inputs_shape[2:]), None, memory_shape)
            self.cell.built = True

    def call(
        self,
        inputs: Tensor,
        memory: Any,
        valid_lens: Any = None,
        *,
        input_lens: Any = None,
        initial_state: Any = None,
        inputs_mask: Any = None,
        memory_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        given = Masking(valid_lens, memory_mask, input_lens, inputs_mask)
        masking, shapes = self._checked(inputs, memory, initial_state, given)
        inputs = ops.cast(inputs, self.compute_dtype)
        steps_mask = _steps_mask(masking.inputs_mask, masking.input_lens, ops.shape(inputs)[1])
        if steps_mask is not None:
            inputs = hide(inputs, steps_mask)
        if not isinstance(memory, Mapping):
            memory = self.cell.precompute(_without_padding(ops.cast(memory, self.compute_dtype), masking))
        first = self._first_states(initial_state, inputs, memory)
        returns_weights = check_switch("return_attention_scores", return_attention_scores)

        def step(inputs: Tensor, states: Any) -> Any:
            made = self.cell(
                inputs,
                states,
                memory,
                masking.valid_lens,
                memory_mask=masking.memory_mask,
                return_attention_scores=returns_weights,
                training=training,
            )
            if not returns_weights:
                return made
            (output, states), weights = made
            flat = ops.reshape(weights, (ops.shape(weights)[0], -1))
            return ops.concatenate([output, flat], axis=-1), states

        outputs, states = self._looped(step, inputs, first, steps_mask, training)
        outputs, weights = self._parted(outputs)
        output = outputs if self.return_sequences else _last_output(outputs, steps_mask)
        if self.return_sequences and steps_mask is not None:
            set_keras_mask(output, steps_mask)
        result = (output, *states) if self.return_state else output
        return (result, self._by_heads(weights, shapes)) if returns_weights else result

    def _looped(
        self, step: Any, inputs: Tensor, states: list[Tensor], steps_mask: Tensor | None, training: bool | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs (B, T, ...) of all steps, and the states after the last."""
        options: dict[str, Any] = {} if steps_mask is None else {"mask": steps_mask, "zero_output_for_mask": True}
        with self.cell.dropout_for(inputs, training), draws_of_steps(self.cell, step, inputs, training) as looped:
            _, outputs, states = loop_over_time(*looped, states, input_length=inputs.shape[1], **options)
        return ops.cast(outputs, self.compute_dtype), list(states)

    def _checked(self, inputs: Tensor, memory: Any, initial_state: Any, given: Masking) -> tuple[Masking, Shapes]:
        """Checks what a call, symbolic or not, was given."""
        check_passed(inputs=inputs, memory=memory)
        masking, shapes = checked(self.cell, shape_of(inputs), memory, given)
        first = [shape_of(state) for state in _listed(initial_state)]
        check_first_states(first, shapes.states, len(state_sizes(self.cell.cell)))
        return masking, shapes

    def _first_states(self, initial_state: Any, inputs: Tensor, memory: Any) -> list[Tensor]:
        states: list[Tensor] = self.cell.get_initial_state(batch_size=ops.shape(inputs)[0], memory=memory)
        for place, state in enumerate(_listed(initial_state)):
            states[place] = ops.cast(state, dtype_of(states[place]))
        return states

    def _parted(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs, whose size is known, and the weights beside them."""
        size = self.cell.output_size
        return ops.reshape(outputs[..., :size], (*ops.shape(outputs)[:2], size)), outputs[..., size:]

    def _by_heads(self, weights: Tensor, shapes: Shapes) -> Tensor:
        """Weights (B, T, H Tk) as (B, H, T, Tk), those without heads as they are."""
        if len(shapes.weights) == 3:
            return weights
        batch, steps, both = ops.shape(weights)
        heads = shapes.weights[1]
        return ops.transpose(ops.reshape(weights, (batch, steps, heads, both // heads)), (0, 2, 1, 3))

    def compute_output_spec(self, inputs: Tensor, memory: Any, valid_lens: Any = None, **options: Any) -> Any:
        given = Masking(valid_lens, options.get("memory_mask"), options.get("input_lens"), options.get("inputs_mask"))
        masking, shapes = self._checked(inputs, memory, options.get("initial_state"), given)
        output = keras.KerasTensor(self._output_shape(shapes), self.compute_dtype)
        if self.return_sequences and masking.inputs_mask is not None:
            set_keras_mask(output, masking.inputs_mask)
        after = map(keras.KerasTensor, shapes.states, self.cell.state_dtypes)
        result = (output, *after) if self.return_state else output
        if not check_switch("return_attention_scores", options.get("return_attention_scores")):
            return result
        return result, keras.KerasTensor(shapes.weights, self.compute_dtype)

    def compute_output_shape(
        self, inputs_shape: Any, memory_shape: Any, *, return_attention_scores: bool = False
    ) -> Any:
        shapes = shapes_of(self.cell, inputs_shape, memory_shape)
        output_shape = self._output_shape(shapes)
        result = (output_shape, *shapes.states) if self.return_state else output_shape
        return (result, shapes.weights) if return_attention_scores else result

    def _output_shape(self, shapes: Shapes) -> Shape:
        batch, *_, steps, _ = shapes.weights
        return (batch, steps, shapes.output_size) if self.return_sequences else (batch, shapes.output_size)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of the outputs: that of the inputs, where there is one output for each step."""
        return previous_mask if self.return_sequences else None

    def get_config(self) -> dict[str, Any]:
        return {name: value for name, value in super().get_config().items() if name not in _OF_KERAS}


def _listed(states: Any) -> list[Tensor]:
    return [] if states is None else list(keras.tree.flatten(states))


def _steps_mask(mask: Tensor | None, lengths: Tensor | None, size: Any) -> Tensor | None:
    """Return True (B, T) where a mask and lengths let a position take part; None if there is neither."""
    return intersect(mask, None if lengths is None else lengths_mask(lengths, 2, size))


def _without_padding(memory: Tensor, masking: Masking) -> Tensor:
    """Set the masked memory to zero before anything is computed of it: zero times NaN is NaN."""
    mask = _steps_mask(masking.memory_mask, masking.valid_lens, ops.shape(memory)[1])
    return memory if mask is None else hide(memory, mask)


def _last_output(outputs: Tensor, steps_mask: Tensor | None) -> Tensor:
    """Return the output (B, size) of the last unmasked step, of outputs (B, T, size); zeros if all are masked."""
    if steps_mask is None:
        return outputs[:, -1]
    steps = ops.arange(1, ops.shape(outputs)[1] + 1, dtype="int32")
    last = ops.max(ops.where(steps_mask, steps, 0), axis=1, keepdims=True)
    return ops.sum(ops.where(ops.expand_dims(ops.equal(steps, last), -1), outputs, 0.0), axis=1)
