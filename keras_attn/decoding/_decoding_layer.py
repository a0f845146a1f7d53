"""Base layer of greedy and beam decoding."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_positive_integer
from .._keras.private_api import is_eager
from .._shapes import dtype_of, shape_of
from .._types import Shape, Tensor
from ._loop_state import Carry, Search, Specs, Tensors, spec_of
from ._loops import run
from ._ops import repeat
from ._step_wiring import (
    POSITION,
    batch_of,
    batches_of,
    called,
    check_given,
    check_pair,
    check_step,
    inputs_of,
    names_of,
)


class Decoding(keras.layers.Layer):
    """A layer that runs a step until each row has ended, from what an encoder gives.

    It is called with the encoder's inputs by name, and holds both models themselves: what trains them later counts.
    A subclass defines `_first_rows`, the rows of the first carry, from the inputs of the step by name; `_advance`, one
    step, as `Search.advance`; and `_answer`, the outputs, from the results of a search.
    """

    width = 1  # W, of sequences that go on in a row
    _ranks: tuple[int, ...] = ()  # the axis of those that are given, where there are several

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
        # What is given keeps its dtype: the inputs of both models say what they take.
        super().__init__(**{"autocast": False, **kwargs})
        self._names = names_of(token, logits, state, outputs)
        self.start = start if isinstance(start, str) else _check_token("start", start)
        self.end = None if end is None else _check_token("end", end)
        self.max_length = check_positive_integer("max_length", max_length)
        check_step(step, self._names, self.end)
        check_pair(encoder, step, self._names, self.start)
        self.encoder, self.step = encoder, step
        self.supports_masking = True  # a mask of what is given is ignored, and says nothing of the answer
        # Under XLA no row leaves. Keras then refuses `jit_compile=True`; a `tf.function` of one's own may compile it.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self.built = True

    @property
    def batch(self) -> int | None:
        """How many rows are decoded at a time where a model takes one batch only, else None."""
        return batch_of(self.encoder, self.step, self.width)

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Decode. Nothing is trained here, so `training` makes no difference."""
        count = ops.shape(next(iter(inputs.values())))[0]
        encoded = self.encoder(called(self.encoder, inputs), training=False)
        read = {*inputs_of(self.step), self.start}
        # Copies, because a tensor may carry an implicit mask, which the step must not see.
        given = {name: ops.copy(x) for name, x in {**inputs, **encoded}.items() if name in read}
        if keras.backend.backend() == "tensorflow" and is_eager():
            from ._tensorflow_loops import run_as_program

            known = {**inputs_of(self.encoder), **self.encoder.output}
            shapes = {name: (None, *shape_of(known[name])[1:]) for name in given}
            return run_as_program(self._decoded, given, count, shapes)
        return self._decoded(given, count)

    def _decoded(self, given: Tensors, count: Any) -> Tensors:
        """The outputs, from what the step is given by name, in `count` rows."""
        inputs = inputs_of(self.step)
        search = Search(
            advance=self._advance,
            carry=Carry(self._first_rows(given, count), self._first_states(given, count)),
            memory={name: ops.cast(given[name], dtype_of(inputs[name])) for name in self._memory_names(given)},
            width=self.width,
            limit=self.max_length,
            ends=self.end is not None,
            rows_stay=bool(batches_of(inputs)),
            states={name: spec_of(inputs[name]) for name in self._names.state.values()},
            kept=lambda: self._kept_specs(given),
        )
        outputs: Tensors = self._answer(*run(search))
        return outputs

    def compute_output_spec(self, inputs: Mapping[str, Any], training: bool | None = None) -> dict[str, Any]:
        encoded = self.encoder.compute_output_spec(called(self.encoder, inputs))
        given = {**inputs, **encoded}
        check_given(self.step, self._names, given)
        self._check_outputs_stay(given)
        shape = (shape_of(next(iter(inputs.values())))[0], *self._ranks, self.max_length)
        step = self._step_spec(given)
        return {
            "tokens": keras.KerasTensor(shape, "int32"),
            "lengths": keras.KerasTensor(shape[:-1], "int32"),
            "scores": keras.KerasTensor(shape[:-1], "float32"),
            **{n: keras.KerasTensor((*shape, *step[n].shape[1:]), step[n].dtype) for n in self._names.outputs},
        }

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """None: masks end here."""

    def get_config(self) -> dict[str, Any]:
        of_encoder = {id(layer): layer.name for layer in self.encoder.layers}
        return {
            **super().get_config(),
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "step": keras.saving.serialize_keras_object(self.step),
            # Keras saves a layer of two functional models as one, but loads each model as if the layer's calls in it
            # were the first. So it is said which layers of the step are those of the encoder.
            "shared": {layer.name: of_encoder[id(layer)] for layer in self.step.layers if id(layer) in of_encoder},
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
        """The layer of a config, with the encoder's layers in the step where that called them."""
        shared, *models = (config[name] for name in ("shared", "encoder", "step"))
        encoder, step = map(keras.saving.deserialize_keras_object, models)
        if shared:
            step = keras.models.clone_model(
                step,
                clone_function=lambda layer: encoder.get_layer(shared[layer.name]) if layer.name in shared else layer,
            )
        options = {name: value for name, value in config.items() if name != "shared"}
        return cls(**{**options, "encoder": encoder, "step": step})

    def _kept_specs(self, given: Tensors) -> Specs:
        """Shape and dtype of what is kept of a step."""
        step = self._step_spec(given)
        return {name: spec_of(step[name]) for name in self._names.outputs}

    def _check_outputs_stay(self, given: Mapping[str, Any]) -> None:
        """Raises ValueError if an output that is given for every step gets another shape as a cache grows."""
        inputs, states = inputs_of(self.step), self._names.state
        after = self._step_spec(given, dict.fromkeys(states.values(), 5))
        # A state that the encoder gives may have any size and keep it, such as weights so far.
        caches = [
            target
            for source, target in states.items()
            if target not in given or _grows(shape_of(inputs[target]), shape_of(after[source]), 5)
        ]
        first, second = (self._step_spec(given, dict.fromkeys(caches, size)) for size in (5, 6))
        for name in self._names.outputs:
            if shape_of(first[name]) != shape_of(second[name]):
                raise ValueError(
                    "`outputs` must keep their shape from step to step, to be put together. Received: "
                    f"`{name}` with shape {shape_of(first[name])}, and {shape_of(second[name])} a step later. "
                    "Leave it out, or use a cache of fixed capacity."
                )

    def _step_spec(self, given: Mapping[str, Any], filled: Mapping[str, int] | None = None) -> dict[str, Any]:
        """The shapes and dtypes of what a step gives, for any batch, and for states that hold any number or so many."""
        rows = None if self.batch is None else self.batch * self.width
        memory, filled, fed = self._memory_names(given), filled or {}, {}
        for name, taken in inputs_of(self.step).items():
            shape = shape_of(given[name] if name in memory else taken)[1:]
            sizes = (filled.get(name) if size is None else size for size in shape)
            fed[name] = keras.KerasTensor((rows, *sizes), dtype_of(taken))
        spec: dict[str, Any] = self.step.compute_output_spec(called(self.step, fed))
        return spec

    def _memory_names(self, given: Mapping[str, Any]) -> list[str]:
        """The inputs of the step that stay the same."""
        changing = {self._names.token, *self._names.state.values()}
        return [name for name in inputs_of(self.step) if name in given and name not in changing]

    def _first_states(self, given: Tensors, count: Any) -> Tensors:
        """The states before the first step, `(B W, ...)` each."""
        inputs, first = inputs_of(self.step), {}
        for name in self._names.state.values():
            shape, dtype = shape_of(inputs[name]), dtype_of(inputs[name])
            if name in given:
                first[name] = repeat(ops.cast(given[name], dtype), self.width)
            else:
                first[name] = ops.zeros((count * self.width, *(size or 0 for size in shape[1:])), dtype)
        return first

    def _first_tokens(self, given: Tensors, count: Any) -> Tensor:
        """The token before the first, `(B,)`."""
        if isinstance(self.start, str):
            return ops.cast(given[self.start], "int32")
        return ops.full((count,), self.start, "int32")

    def _stepped(
        self, number: Tensor, tokens: Tensor, states: Tensors, memory: Tensors
    ) -> tuple[Tensor, Tensors, Tensors]:
        """What the step gives after the last tokens, `(n W,)`: logits, the next states, and the outputs to keep."""
        inputs, names = inputs_of(self.step), self._names
        fed = {**memory, **states, names.token: ops.cast(tokens, dtype_of(inputs[names.token]))}
        if POSITION in inputs and POSITION not in fed:
            fed[POSITION] = ops.broadcast_to(ops.cast(number, dtype_of(inputs[POSITION])), ops.shape(tokens))
        out = self.step(called(self.step, fed), training=False)
        states = {target: out[source] for source, target in names.state.items()}
        return out[names.logits], states, {name: out[name] for name in names.outputs}


def _grows(before: Shape, after: Shape, filled: int) -> bool:
    """Whether a state that held so many comes out with another size."""
    return any(size is None and found not in (None, filled) for size, found in zip(before[1:], after[1:], strict=True))


def _check_token(name: str, token: Any) -> int:
    if isinstance(token, bool) or not hasattr(token, "__index__"):
        also = ", or the name of what holds one for each row" if name == "start" else " or None"
        raise TypeError(f"`{name}` must be an integer{also}. Received: {name} of type {type(token).__name__}.")
    return int(token)
