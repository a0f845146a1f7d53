"""Greedy decoding."""

from typing import Any

import keras
from keras import ops

from .._shapes import at_least_float32
from .._types import Tensor
from ._decoding_layer import Decoding
from ._loop_state import Carry, Specs, Tensors
from ._ops import amax, argmax, where


@keras.saving.register_keras_serializable(package="keras_attn")
class GreedyDecoding(Decoding):
    """The layer of `keras_attn.decoding.greedy`, which says what it computes."""

    def _first_rows(self, given: Tensors, count: Any) -> Tensors:
        tokens = self._first_tokens(given, count)
        return {"token": tokens, "done": ops.zeros_like(tokens, dtype="bool")}

    def _kept_specs(self, given: Tensors) -> Specs:
        return {"tokens": ((None,), "int32"), "scores": ((None,), "float32"), **super()._kept_specs(given)}

    def _advance(self, number: Tensor, carry: Carry, memory: Tensors, entries: Tensor) -> tuple[Carry, Tensors]:
        logits, states, outputs = self._stepped(number, carry.rows["token"], carry.states, memory)
        token = argmax(logits)
        score = amax(ops.log_softmax(at_least_float32(logits), axis=-1))
        done = carry.rows["done"]
        if self.end is not None:
            done = ops.logical_or(done, ops.equal(token, self.end))
        kept = {"tokens": token, "scores": ops.cast(score, "float32"), **outputs}
        return Carry({"token": token, "done": done}, states), kept

    def _answer(self, rows: Tensors, steps: Tensors) -> Tensors:
        steps = {name: ops.swapaxes(x, 0, 1) for name, x in steps.items()}
        tokens = steps.pop("tokens")
        if self.end is None:
            running = ops.ones_like(tokens, dtype="bool")
        else:
            ended = ops.cast(ops.equal(tokens, self.end), "int32")
            running = ops.equal(ops.cumsum(ended, axis=1) - ended, 0)  # no end before this place
        kept = {name: where(running, x, 0) for name, x in steps.items()}
        return {
            "tokens": where(running, tokens, self.end or 0),
            "lengths": ops.sum(ops.cast(running, "int32"), axis=1),
            "scores": ops.sum(kept.pop("scores"), axis=1),
            **kept,
        }
