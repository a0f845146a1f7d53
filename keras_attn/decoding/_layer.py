"""What both ways of decoding share: the models a layer holds, and how each input of the step is fed."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from .._checks.arguments import check_positive_integer
from .._keras.private import is_eager
from .._tensors import Shape, Tensor, dtype_of, shape_of
from ._config import models_config, with_models
from ._eager import run_as_program
from ._loops import run
from ._names import POSITION, batch_of, called, check_given, check_pair, check_step, inputs_of, names_of, outputs_of
from ._search import Found, Search, Specs, Tensors


class Decoding(keras.layers.Layer):
    """A layer that runs a step until each row has ended, from what an encoder gives.

    It is called with the encoder's inputs by name, and holds both models themselves: what trains them later counts.
    A subclass gives `_search`, `_answer` and `_answer_spec`.
    """

    _width = 1

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
        check_step(step, self._names)
        check_pair(encoder, step, self._names, self.start)
        _check_end(self.end, outputs_of(step)[self._names.logits].shape[-1])
        self.encoder, self.step = encoder, step
        self.supports_masking = True  # a mask of what is given is ignored, and says nothing of the answer
        # Under XLA no row leaves. Keras then refuses `jit_compile=True`; a `tf.function` of one's own may compile it.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self.built = True

    @property
    def batch(self) -> int | None:
        """How many rows are decoded at a time where a model takes one batch only, else None."""
        return batch_of(self.encoder, self.step, self._width)

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Decodes. Nothing is trained here, so `training` makes no difference."""
        count = ops.shape(next(iter(inputs.values())))[0]
        encoded = self.encoder(called(self.encoder, inputs), training=False)
        read = {*inputs_of(self.step), self.start}
        # Copies, because a tensor may carry an implicit mask, which the step must not see.
        given = {name: ops.copy(x) for name, x in {**inputs, **encoded}.items() if name in read}
        if keras.backend.backend() == "tensorflow" and is_eager():
            known = {**inputs_of(self.encoder), **self.encoder.output}
            shapes = {name: (None, *shape_of(known[name])[1:]) for name in given}
            return run_as_program(self, "_decoded", given, count, shapes)
        return self._decoded(given, count)

    def _decoded(self, given: Tensors, count: Any) -> Tensors:
        """The outputs, from what the step is given by name, in `count` rows."""
        return self._answer(run(self._search(given, count)))

    def compute_output_spec(self, inputs: Mapping[str, Any], training: bool | None = None) -> dict[str, Any]:
        """The shape and dtype of what `call` returns."""
        encoded = self.encoder.compute_output_spec(called(self.encoder, inputs))
        given = {**inputs, **encoded}
        check_given(self.step, self._names, given)
        self._check_outputs_stay(given)
        return self._answer_spec(shape_of(next(iter(inputs.values())))[0], self._step_spec(given))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """None: masks end here."""

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        return {
            **super().get_config(),
            **models_config(self.encoder, self.step),
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
        """The layer of a config."""
        return cls(**with_models(config))

    def _search(self, given: Tensors, count: Any) -> Search:
        """The search in `count` rows, from what is given to the step by name."""
        raise NotImplementedError

    def _answer(self, found: Found) -> Tensors:
        """The outputs."""
        raise NotImplementedError

    def _answer_spec(self, count: int | None, step: Mapping[str, Any]) -> dict[str, Any]:
        """Their shapes and dtypes, from those of the step's outputs."""
        raise NotImplementedError

    def _check_outputs_stay(self, given: Mapping[str, Any]) -> None:
        """Raises ValueError if an output that is given for every step gets another shape as a cache grows."""
        first, second = (self._step_spec(given, filled=size) for size in (5, 6))
        for name in self._names.outputs:
            if shape_of(first[name]) != shape_of(second[name]):
                raise ValueError(
                    "`outputs` must keep their shape from step to step, to be put together. Received: "
                    f"`{name}` with shape {shape_of(first[name])}, and {shape_of(second[name])} a step later. "
                    "Leave it out, or use a cache of fixed capacity."
                )

    def _step_spec(self, given: Mapping[str, Any], filled: int | None = None) -> dict[str, Any]:
        """The shapes and dtypes of what a step gives, for any batch, and for a cache that holds any or so many."""
        inputs, rows = inputs_of(self.step), None if self.batch is None else self.batch * self._width
        memory = self._memory_names(given)
        for name, tensor in inputs.items():
            shape = shape_of(given[name] if name in memory else tensor)
            inputs[name] = keras.KerasTensor((rows, *shape[1:]), dtype_of(tensor))

        def spec_with(states: Collection[str], size: int) -> dict[str, Any]:
            of_states = {
                name: keras.KerasTensor(
                    (rows, *(size if known is None else known for known in shape_of(inputs[name])[1:])),
                    dtype_of(inputs[name]),
                )
                for name in states
            }
            spec: dict[str, Any] = self.step.compute_output_spec(called(self.step, {**inputs, **of_states}))
            return spec

        if filled is None:
            return spec_with((), 0)
        after = spec_with(self._names.state.values(), filled)
        # A state that the encoder gives may have any size and keep it, such as weights so far.
        caches = [
            target
            for source, target in self._names.state.items()
            if target not in given or _grows(shape_of(inputs[target]), shape_of(after[source]), filled)
        ]
        return spec_with(caches, filled)

    def _memory_names(self, given: Mapping[str, Any]) -> list[str]:
        """The inputs of the step that stay the same."""
        changing = {self._names.token, *self._names.state.values()}
        return [name for name in inputs_of(self.step) if name in given and name not in changing]

    def _memory(self, given: Tensors) -> Tensors:
        inputs = inputs_of(self.step)
        return {name: ops.cast(given[name], dtype_of(inputs[name])) for name in self._memory_names(given)}

    def _first_states(self, given: Tensors, count: Any) -> Tensors:
        """The states before the first step, `(B W, ...)` each."""
        inputs, first = inputs_of(self.step), {}
        for name in self._names.state.values():
            shape, dtype = shape_of(inputs[name]), dtype_of(inputs[name])
            if name not in given:
                first[name] = ops.zeros((count * self._width, *(size or 0 for size in shape[1:])), dtype)
            elif self._width == 1:
                first[name] = ops.cast(given[name], dtype)
            else:
                first[name] = ops.repeat(ops.cast(given[name], dtype), self._width, axis=0)
        return first

    def _kept_specs(self, given: Tensors) -> Specs:
        step = self._step_spec(given)
        return {name: spec_of(step[name]) for name in self._names.outputs}

    def _state_specs(self) -> Specs:
        inputs = inputs_of(self.step)
        return {name: spec_of(inputs[name]) for name in self._names.state.values()}

    def _first_tokens(self, given: Tensors, count: Any) -> Tensor:
        """The token before the first, `(B,)`."""
        if isinstance(self.start, str):
            return ops.cast(given[self.start], "int32")
        return ops.full((count,), self.start, "int32")

    def _stepped(self, number: Tensor, tokens: Tensor, states: Tensors, memory: Tensors) -> Tensors:
        """What the step gives after the last tokens, `(n W,)`."""
        inputs = inputs_of(self.step)
        fed = {**memory, **states, self._names.token: ops.cast(tokens, dtype_of(inputs[self._names.token]))}
        if POSITION in inputs and POSITION not in fed:
            fed[POSITION] = ops.broadcast_to(ops.cast(number, dtype_of(inputs[POSITION])), ops.shape(tokens))
        out: Tensors = self.step(called(self.step, fed), training=False)
        return out

    def _next_states(self, out: Tensors) -> Tensors:
        return {target: out[source] for source, target in self._names.state.items()}


def _grows(before: Shape, after: Shape, filled: int) -> bool:
    """Whether a state that held so many comes out with another size."""
    return any(size is None and found not in (None, filled) for size, found in zip(before[1:], after[1:], strict=True))


def spec_of(tensor: Any) -> tuple[Shape, str]:
    """Shape and dtype of a tensor, with None for the batch."""
    return (None, *shape_of(tensor)[1:]), dtype_of(tensor)


def kept_where(x: Tensor, condition: Tensor, other: Any) -> Tensor:
    """A tensor where a condition on its first axes holds, another value elsewhere."""
    for _ in range(len(x.shape) - len(condition.shape)):
        condition = ops.expand_dims(condition, -1)
    return ops.where(condition, x, ops.cast(other, dtype_of(x)))


def _check_end(end: int | None, vocabulary: int) -> None:
    if end is not None and not 0 <= end < vocabulary:
        raise ValueError(
            f"`end` must be one of the {vocabulary} tokens that `logits` are for, from 0, or None. Received: end={end}."
        )


def _check_token(name: str, token: Any) -> int:
    if isinstance(token, bool) or not hasattr(token, "__index__"):
        also = ", or the name of what holds one for each row" if name == "start" else " or None"
        raise TypeError(f"`{name}` must be an integer{also}. Received: {name} of type {type(token).__name__}.")
    return int(token)
