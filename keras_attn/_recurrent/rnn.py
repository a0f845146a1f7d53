"""Loop over time steps around an AttentionCell."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_call_flag, check_flag
from .._keras.call_errors import CallErrorMixin
from .._keras.private_api import LargestOutputMixin, loop_over_time, set_keras_mask
from .._maths.masks import intersect, lengths_mask, zero_masked
from .._shapes import dtype_of, shape_of
from .._types import Shape, Tensor
from .call_checks import CallMasks, OutputShapes, check_initial_state, check_not_none, compute_shapes, validate_call
from .cell import AttentionCell
from .keras_cells import seed_each_step, state_sizes

_UNSUPPORTED_OPTIONS = ("go_backwards", "stateful", "unroll", "zero_output_for_mask")


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionRNN(CallErrorMixin, LargestOutputMixin, keras.layers.RNN):
    """Recurrent decoder with attention: runs an `AttentionCell` over sequences.

    Tensors that depend only on the memory are computed once, before the loop.

    Args:
        cell: The cell.
        return_sequences: Whether to return the outputs of all steps, rather than only the last.
        return_state: Whether to return the states after the last step as well.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Floats (B, T, Dx).
        memory: Floats (B, Tk, Dv), or the result of `cell.precompute(memory)`.
        valid_lens: Integers (B,). Valid lengths of the memory: key `j` is masked unless `j < valid_lens`.
        input_lens: Integers (B,). Valid lengths of the inputs: step `t` is masked unless `t < input_lens`.
        initial_state: Initial states, as a tensor or a list: the states of the Keras cell, or all states. None for
            `cell.get_initial_state`.
        inputs_mask: Booleans (B, T). Unless given, Keras fills it from the mask that `inputs` carries.
        memory_mask: Booleans (B, Tk), likewise from `memory`.
        return_attention_scores: Whether to return the weights of all steps as well.
        training: Whether dropout is active. The dropout masks of the Keras cell are the same at each step; those of the
            attention weights are drawn at each step.

    Returns:
        Outputs (B, T, size), or the last output (B, size); with `return_state=True` a tuple of the outputs and the
        states. With `return_attention_scores=True`, a pair of these and the weights (B, T, Tk), or (B, H, T, Tk) with
        heads.

    Masking:
        A masked step leaves the states unchanged, and its output and weights are zeros. The last output is that of
        the last unmasked step, or zeros. NaN in masked steps, or in the padding of the memory, reaches neither outputs
        nor gradients.

    Raises:
        TypeError: If lengths are not integers or a mask is not boolean.
        ValueError: If ranks or sizes do not match.

    Example:
        >>> decode = AttentionRNN(AttentionCell(keras.layers.GRUCell(32), AdditiveAttention(32)))
        >>> outputs, weights = decode(embedded, encoded, valid_lens, return_attention_scores=True)

    Source: as for `AttentionCell`.
    """

    CALL_EXAMPLE = "`layer(inputs, memory)`"

    def __init__(
        self, cell: AttentionCell, return_sequences: bool = True, return_state: bool = False, **kwargs: Any
    ) -> None:
        if not isinstance(cell, AttentionCell):
            raise TypeError(
                "`cell` must be an `AttentionCell`; `keras.layers.RNN` runs other cells. "
                f"Received: cell of type {type(cell).__name__}."
            )
        if options := [name for name in _UNSUPPORTED_OPTIONS if name in kwargs]:
            raise ValueError(f"`AttentionRNN` has no {', '.join(options)}, unlike `keras.layers.RNN`. Leave it out.")
        # As in `AttentionCell`: cumulative weights are sums, and keep float32 in half precision.
        kwargs = {"autocast": False, **kwargs}
        flags = {"return_sequences": return_sequences, "return_state": return_state}
        super().__init__(cell, **{name: check_flag(name, value) for name, value in flags.items()}, **kwargs)

    def build(self, inputs_shape: Any, memory_shape: Any = None) -> None:
        if not self.cell.built:
            check_not_none(memory=memory_shape)
            compute_shapes(self.cell, inputs_shape, memory_shape)
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
        masks = CallMasks(valid_lens, memory_mask, input_lens, inputs_mask)
        masks, shapes = self._check_call(inputs, memory, initial_state, masks)
        inputs = ops.cast(inputs, self.compute_dtype)
        time_mask = _make_time_mask(masks.inputs_mask, masks.input_lens, ops.shape(inputs)[1])
        if time_mask is not None:
            inputs = zero_masked(inputs, time_mask)
        if not isinstance(memory, Mapping):
            memory = self.cell.precompute(_zero_padding(ops.cast(memory, self.compute_dtype), masks))
        states = self._make_initial_states(initial_state, inputs, memory)
        returns_weights = check_call_flag("return_attention_scores", return_attention_scores)
        options = {"memory_mask": masks.memory_mask, "return_attention_scores": returns_weights, "training": training}

        def step(inputs: Tensor, states: Any) -> Any:
            result = self.cell(inputs, states, memory, masks.valid_lens, **options)
            if not returns_weights:
                return result
            # A step of the Keras loop has one output, so the weights are appended to it and split off after the loop.
            (output, states), weights = result
            flat = ops.reshape(weights, (ops.shape(weights)[0], -1))
            return ops.concatenate([output, flat], axis=-1), states

        outputs, states = self._run_loop(step, inputs, states, time_mask, training)
        outputs, weights = self._split_weights(outputs)
        output = outputs if self.return_sequences else _last_output(outputs, time_mask)
        if self.return_sequences and time_mask is not None:
            set_keras_mask(output, time_mask)
        result = (output, *states) if self.return_state else output
        return (result, self._split_heads(weights, shapes)) if returns_weights else result

    def _run_loop(
        self, step: Any, inputs: Tensor, states: list[Tensor], time_mask: Tensor | None, training: bool | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs (B, T, ...) of all steps, and the states after the last step."""
        options: dict[str, Any] = {} if time_mask is None else {"mask": time_mask, "zero_output_for_mask": True}
        with self.cell.dropout_for(inputs, training), seed_each_step(self.cell, step, inputs, training) as seeded:
            _, outputs, states = loop_over_time(*seeded, states, input_length=inputs.shape[1], **options)
        return ops.cast(outputs, self.compute_dtype), list(states)

    def _check_call(
        self, inputs: Tensor, memory: Any, initial_state: Any, masks: CallMasks
    ) -> tuple[CallMasks, OutputShapes]:
        """Check the arguments of a symbolic or eager call; return masks as tensors, and the output shapes."""
        check_not_none(inputs=inputs, memory=memory)
        masks, shapes = validate_call(self.cell, shape_of(inputs), memory, masks)
        initial_shapes = [shape_of(state) for state in _as_list(initial_state)]
        check_initial_state(initial_shapes, shapes.states, len(state_sizes(self.cell.cell)))
        return masks, shapes

    def _make_initial_states(self, initial_state: Any, inputs: Tensor, memory: Any) -> list[Tensor]:
        states: list[Tensor] = self.cell.get_initial_state(batch_size=ops.shape(inputs)[0], memory=memory)
        for index, state in enumerate(_as_list(initial_state)):
            states[index] = ops.cast(state, dtype_of(states[index]))
        return states

    def _split_weights(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Split (B, T, size + H Tk) into outputs (B, T, size), with a static size, and weights (B, T, H Tk)."""
        size = self.cell.output_size
        return ops.reshape(outputs[..., :size], (*ops.shape(outputs)[:2], size)), outputs[..., size:]

    def _split_heads(self, weights: Tensor, shapes: OutputShapes) -> Tensor:
        """Reshape weights (B, T, H Tk) to (B, H, T, Tk); return weights without heads unchanged."""
        if len(shapes.weights) == 3:
            return weights
        batch, num_steps, size = ops.shape(weights)
        num_heads = shapes.weights[1]
        return ops.transpose(ops.reshape(weights, (batch, num_steps, num_heads, size // num_heads)), (0, 2, 1, 3))

    def compute_output_spec(self, inputs: Tensor, memory: Any, valid_lens: Any = None, **options: Any) -> Any:
        masks = CallMasks(valid_lens, options.get("memory_mask"), options.get("input_lens"), options.get("inputs_mask"))
        masks, shapes = self._check_call(inputs, memory, options.get("initial_state"), masks)
        output = keras.KerasTensor(self._output_shape(shapes), self.compute_dtype)
        if self.return_sequences and masks.inputs_mask is not None:
            set_keras_mask(output, masks.inputs_mask)
        states = map(keras.KerasTensor, shapes.states, self.cell.state_dtypes)
        result = (output, *states) if self.return_state else output
        if not check_call_flag("return_attention_scores", options.get("return_attention_scores")):
            return result
        return result, keras.KerasTensor(shapes.weights, self.compute_dtype)

    def compute_output_shape(
        self, inputs_shape: Any, memory_shape: Any, *, return_attention_scores: bool = False
    ) -> Any:
        shapes = compute_shapes(self.cell, inputs_shape, memory_shape)
        output_shape = self._output_shape(shapes)
        result = (output_shape, *shapes.states) if self.return_state else output_shape
        return (result, shapes.weights) if return_attention_scores else result

    def _output_shape(self, shapes: OutputShapes) -> Shape:
        batch, *_, num_steps, _ = shapes.weights
        return (batch, num_steps, shapes.output_size) if self.return_sequences else (batch, shapes.output_size)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return the mask of the inputs if the outputs have a time axis, else None."""
        return previous_mask if self.return_sequences else None

    def get_config(self) -> dict[str, Any]:
        return {name: value for name, value in super().get_config().items() if name not in _UNSUPPORTED_OPTIONS}


def _as_list(states: Any) -> list[Tensor]:
    return [] if states is None else list(keras.tree.flatten(states))


def _make_time_mask(mask: Tensor | None, lengths: Tensor | None, size: Any) -> Tensor | None:
    """Return a mask (B, T) of the positions that are unmasked and within the lengths (B,); None if both are None."""
    return intersect(mask, None if lengths is None else lengths_mask(lengths, 2, size))


def _zero_padding(memory: Tensor, masks: CallMasks) -> Tensor:
    """Set masked positions of a memory (B, Tk, Dv) to zero."""
    # Before the projections: a weight of 0 times a projected NaN is NaN, and so is the gradient of the kernel.
    mask = _make_time_mask(masks.memory_mask, masks.valid_lens, ops.shape(memory)[1])
    return memory if mask is None else zero_masked(memory, mask)


def _last_output(outputs: Tensor, time_mask: Tensor | None) -> Tensor:
    """Return the output (B, size) of the last unmasked step of outputs (B, T, size); zeros if all are masked."""
    if time_mask is None:
        return outputs[:, -1]
    steps = ops.arange(1, ops.shape(outputs)[1] + 1, dtype="int32")
    last = ops.max(ops.where(time_mask, steps, 0), axis=1, keepdims=True)
    return ops.sum(ops.where(ops.expand_dims(ops.equal(steps, last), -1), outputs, 0.0), axis=1)
