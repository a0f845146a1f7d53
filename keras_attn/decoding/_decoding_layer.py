"""Base layer of greedy and beam decoding."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_positive_integer
from .._keras.private_api import is_eager
from .._shapes import dtype_of, shape_of
from .._types import Shape, Tensor
from . import _step_wiring
from ._loop_state import Carry, DecodingLoop, Specs, Tensors, spec_of
from ._loops import run_loop
from ._ops import repeat
from ._step_wiring import POSITION, inputs_by_name, pack_inputs


class Decoding(keras.layers.Layer):
    """Base layer that runs an encoder once, then a step until each row has ended.

    The layer is called with the encoder's inputs by name. It holds both models without a copy, so later training has an
    effect. A subclass defines `_make_initial_rows`, the rows of the first carry; `_advance`, one step, as in
    `DecodingLoop`; and `_build_outputs`, the outputs, from the results of `run_loop`.
    """

    width = 1  # W, number of sequences in the beam of a row
    # (K,) if outputs have an axis for the K best sequences of a row.
    _beam_axes: tuple[int, ...] = ()

    def __init__(
        self,
        encoder: Any,
        step: Any,
        state: Mapping[str, str],
        *,
        start: int | str,
        end: int | None = None,
        max_length: int,
        token: str = "token",
        logits: str = "logits",
        outputs: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        # Without autocast: inputs keep the dtypes that the inputs of the encoder and of the step declare.
        super().__init__(**{"autocast": False, **kwargs})
        self._names = _step_wiring.validate_names(token, logits, state, outputs)
        self.start = start if isinstance(start, str) else _check_token("start", start)
        self.end = None if end is None else _check_token("end", end)
        self.max_length = check_positive_integer("max_length", max_length)
        _step_wiring.check_step(step, self._names, self.end)
        _step_wiring.check_step_inputs_fed(encoder, step, self._names, self.start)
        self.encoder, self.step = encoder, step
        self.supports_masking = True  # implicit masks of inputs are ignored
        # XLA cannot drop finished rows, so Keras refuses `jit_compile=True`. A custom `tf.function` may use XLA.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self.built = True

    @property
    def batch(self) -> int | None:
        """Number of rows if the batch size of a model is fixed, else None."""
        return _step_wiring.get_batch_size(self.encoder, self.step, self.width)

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Decode. Dropout is off: `training` has no effect."""
        num_rows = ops.shape(next(iter(inputs.values())))[0]
        outputs = self.encoder(pack_inputs(self.encoder, inputs), training=False)
        names = {*inputs_by_name(self.step), self.start}
        # Copies drop the implicit Keras masks, which must not reach the step.
        encoded = {name: ops.copy(x) for name, x in {**inputs, **outputs}.items() if name in names}
        if keras.backend.backend() == "tensorflow" and is_eager():
            from ._tensorflow_loops import run_as_function

            symbolic = {**inputs_by_name(self.encoder), **self.encoder.output}
            shapes = {name: (None, *shape_of(symbolic[name])[1:]) for name in encoded}
            return run_as_function(self._decode, encoded, num_rows, shapes)
        return self._decode(encoded, num_rows)

    def _decode(self, encoded: Tensors, num_rows: Any) -> Tensors:
        """Return the outputs, from the encoder's inputs and outputs by name."""
        inputs = inputs_by_name(self.step)
        loop = DecodingLoop(
            advance=self._advance,
            carry=Carry(self._make_initial_rows(encoded, num_rows), self._make_initial_states(encoded, num_rows)),
            memory={name: ops.cast(encoded[name], dtype_of(inputs[name])) for name in self._find_memory_names(encoded)},
            width=self.width,
            max_steps=self.max_length,
            can_stop_early=self.end is not None,
            keeps_finished_rows=bool(_step_wiring.get_fixed_batch_sizes(inputs)),
            state_specs={name: spec_of(inputs[name]) for name in self._names.state.values()},
            output_specs=lambda: self._get_output_specs(encoded),
        )
        outputs: Tensors = self._build_outputs(*run_loop(loop))
        return outputs

    def compute_output_spec(self, inputs: Mapping[str, Any], training: bool | None = None) -> dict[str, Any]:
        encoded = {**inputs, **self.encoder.compute_output_spec(pack_inputs(self.encoder, inputs))}
        _step_wiring.check_encoder_fits(self.step, self._names, encoded)
        self._check_outputs_keep_shape(encoded)
        shape = (shape_of(next(iter(inputs.values())))[0], *self._beam_axes, self.max_length)
        step = self._compute_step_spec(encoded)
        return {
            "tokens": keras.KerasTensor(shape, "int32"),
            "lengths": keras.KerasTensor(shape[:-1], "int32"),
            "scores": keras.KerasTensor(shape[:-1], "float32"),
            **{n: keras.KerasTensor((*shape, *step[n].shape[1:]), step[n].dtype) for n in self._names.outputs},
        }

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """Return None: outputs have no implicit mask."""

    def get_config(self) -> dict[str, Any]:
        encoder_layers = {id(layer): layer.name for layer in self.encoder.layers}
        return {
            **super().get_config(),
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "step": keras.saving.serialize_keras_object(self.step),
            # Keras saves a layer that two models share only once, but loads each model as if its own calls of the layer
            # were the first. So the config maps the layers of the step to those of the encoder.
            "shared": {x.name: encoder_layers[id(x)] for x in self.step.layers if id(x) in encoder_layers},
            "state": dict(self._names.state),
            "start": self.start,
            "end": self.end,
            "max_length": self.max_length,
            "token": self._names.token,
            "logits": self._names.logits,
            "outputs": list(self._names.outputs),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Decoding":
        """Create the layer from a config; the step shares the layers of the encoder that `shared` lists."""
        shared, *models = (config[name] for name in ("shared", "encoder", "step"))
        encoder, step = map(keras.saving.deserialize_keras_object, models)
        if shared:
            step = keras.models.clone_model(
                step,
                clone_function=lambda layer: encoder.get_layer(shared[layer.name]) if layer.name in shared else layer,
            )
        options = {name: value for name, value in config.items() if name != "shared"}
        return cls(**{**options, "encoder": encoder, "step": step})

    def _get_output_specs(self, encoded: Tensors) -> Specs:
        """Return the shapes and dtypes of the step outputs to keep."""
        step = self._compute_step_spec(encoded)
        return {name: spec_of(step[name]) for name in self._names.outputs}

    def _check_outputs_keep_shape(self, encoded: Mapping[str, Any]) -> None:
        """Raise ValueError if the shape of an output to keep depends on the size of a growing cache."""
        # Trace the step with caches of 5 and of 6 steps, two arbitrary consecutive sizes, and compare the outputs.
        inputs, states = inputs_by_name(self.step), self._names.state
        next_states = self._compute_step_spec(encoded, dict.fromkeys(states.values(), 5))
        # A state from the encoder, such as cumulative weights, may have a dynamic size that does not grow.
        caches = [
            target
            for source, target in states.items()
            if target not in encoded or _grows(shape_of(inputs[target]), shape_of(next_states[source]), 5)
        ]
        first, second = (self._compute_step_spec(encoded, dict.fromkeys(caches, size)) for size in (5, 6))
        for name in self._names.outputs:
            if shape_of(first[name]) != shape_of(second[name]):
                raise ValueError(
                    "`outputs` must keep their shape from step to step, because they are stacked. Received: "
                    f"`{name}` with shape {shape_of(first[name])}, and {shape_of(second[name])} a step later. "
                    "Omit the output, or use a cache of fixed capacity."
                )

    def _compute_step_spec(self, encoded: Mapping[str, Any], cache_sizes: Mapping[str, int] | None = None) -> Any:
        """Return the outputs of a step as symbolic tensors, with dynamic sizes of states from `cache_sizes`."""
        # An input from the encoder has the encoder's shape, which may be more specific than the step's declaration.
        num_entries = None if self.batch is None else self.batch * self.width
        memory, cache_sizes, inputs = self._find_memory_names(encoded), cache_sizes or {}, {}
        for name, declared in inputs_by_name(self.step).items():
            shape = shape_of(encoded[name] if name in memory else declared)[1:]
            sizes = (cache_sizes.get(name) if size is None else size for size in shape)
            inputs[name] = keras.KerasTensor((num_entries, *sizes), dtype_of(declared))
        return self.step.compute_output_spec(pack_inputs(self.step, inputs))

    def _find_memory_names(self, encoded: Mapping[str, Any]) -> list[str]:
        """Return the names of the step inputs that are the same at each step."""
        changing = {self._names.token, *self._names.state.values()}
        return [name for name in inputs_by_name(self.step) if name in encoded and name not in changing]

    def _make_initial_states(self, encoded: Tensors, num_rows: Any) -> Tensors:
        """Return the states before the first step, `(B W, ...)` each: from the encoder, else zeros."""
        inputs, states = inputs_by_name(self.step), {}
        for name in self._names.state.values():
            shape, dtype = shape_of(inputs[name]), dtype_of(inputs[name])
            if name in encoded:
                states[name] = repeat(ops.cast(encoded[name], dtype), self.width)
            else:
                states[name] = ops.zeros((num_rows * self.width, *(size or 0 for size in shape[1:])), dtype)
        return states

    def _make_initial_tokens(self, encoded: Tensors, num_rows: Any) -> Tensor:
        """Return the start tokens, int32 `(B,)`."""
        if isinstance(self.start, str):
            return ops.cast(encoded[self.start], "int32")
        return ops.full((num_rows,), self.start, "int32")

    def _call_step(
        self, index: Tensor, tokens: Tensor, states: Tensors, memory: Tensors
    ) -> tuple[Tensor, Tensors, Tensors]:
        """Call the step with the last tokens `(n W,)`; return logits `(n W, V)`, next states and outputs to keep."""
        inputs, names = inputs_by_name(self.step), self._names
        feeds = {**memory, **states, names.token: ops.cast(tokens, dtype_of(inputs[names.token]))}
        if POSITION in inputs and POSITION not in feeds:
            feeds[POSITION] = ops.broadcast_to(ops.cast(index, dtype_of(inputs[POSITION])), ops.shape(tokens))
        outputs = self.step(pack_inputs(self.step, feeds), training=False)
        states = {target: outputs[source] for source, target in names.state.items()}
        return outputs[names.logits], states, {name: outputs[name] for name in names.outputs}


def _grows(declared: Shape, after: Shape, size: int) -> bool:
    """Return True if a dynamic axis of a state, with `size` before a step, has another size after the step."""
    axes = zip(declared[1:], after[1:], strict=True)
    return any(old_size is None and new_size not in (None, size) for old_size, new_size in axes)


def _check_token(name: str, token: Any) -> int:
    if isinstance(token, bool) or not hasattr(token, "__index__"):
        alternative = ", or the name of an encoder output or input" if name == "start" else " or None"
        raise TypeError(f"`{name}` must be an integer{alternative}. Received: {name} of type {type(token).__name__}.")
    return int(token)
