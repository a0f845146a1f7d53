"""The likeliest token at each step."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from .._tensors import Tensor, at_least_float32
from ._layer import Decoding, kept_where
from ._names import batches_of, inputs_of
from ._ops import first_largest, largest
from ._search import Carry, Found, Search, Tensors


@keras.saving.register_keras_serializable(package="keras_attn")
class GreedyDecoding(Decoding):
    """The layer of `keras_attn.decoding.greedy`, which says what it computes."""

    def _search(self, given: Tensors, count: Any) -> Search:
        tokens = self._first_tokens(given, count)
        return Search(
            advance=self._advance,
            carry=Carry(
                {"token": tokens, "done": ops.zeros_like(tokens, dtype="bool")}, self._first_states(given, count)
            ),
            memory=self._memory(given),
            width=1,
            limit=self.max_length,
            ends=self.end is not None,
            rows_stay=bool(batches_of(inputs_of(self.step))),
            states=self._state_specs(),
            rows={"token": ((None,), "int32"), "done": ((None,), "bool")},
            kept=lambda: {"tokens": ((None,), "int32"), "scores": ((None,), "float32"), **self._kept_specs(given)},
        )

    def _advance(self, number: Tensor, carry: Carry, memory: Tensors, entries: Tensor) -> tuple[Carry, Tensors]:
        out = self._stepped(number, carry.rows["token"], carry.states, memory)
        logits = out[self._names.logits]
        token = first_largest(logits)
        score = largest(ops.log_softmax(at_least_float32(logits), axis=-1))
        done = carry.rows["done"]
        if self.end is not None:
            done = ops.logical_or(done, ops.equal(token, self.end))
        kept = {
            "tokens": token,
            "scores": ops.cast(score, "float32"),
            **{name: out[name] for name in self._names.outputs},
        }
        return Carry({"token": token, "done": done}, self._next_states(out)), kept

    def _answer(self, found: Found) -> Tensors:
        steps = {name: ops.swapaxes(x, 0, 1) for name, x in found.steps.items()}
        tokens = steps["tokens"]
        if self.end is None:
            running = ops.ones_like(tokens, dtype="bool")
        else:
            ended = ops.cast(ops.equal(tokens, self.end), "int32")
            running = ops.equal(ops.cumsum(ended, axis=1) - ended, 0)  # no end before this place
        return {
            "tokens": kept_where(tokens, running, self.end or 0),
            "lengths": ops.sum(ops.cast(running, "int32"), axis=1),
            "scores": ops.sum(kept_where(steps["scores"], running, 0), axis=1),
            **{name: kept_where(steps[name], running, 0) for name in self._names.outputs},
        }

    def _answer_spec(self, batch: int | None, step: Mapping[str, Any]) -> dict[str, Any]:
        shape = (batch, self.max_length)
        return {
            "tokens": keras.KerasTensor(shape, "int32"),
            "lengths": keras.KerasTensor((batch,), "int32"),
            "scores": keras.KerasTensor((batch,), "float32"),
            **{n: keras.KerasTensor((*shape, *step[n].shape[1:]), step[n].dtype) for n in self._names.outputs},
        }
