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
    """Layer of `keras_attn.decoding.greedy`, whose docstring describes the results."""

    def _make_initial_rows(self, encoded: Tensors, num_rows: Any) -> Tensors:
        tokens = self._make_initial_tokens(encoded, num_rows)
        return {"token": tokens, "done": ops.zeros_like(tokens, dtype="bool")}

    def _get_output_specs(self, encoded: Tensors) -> Specs:
        return {"tokens": ((None,), "int32"), "scores": ((None,), "float32"), **super()._get_output_specs(encoded)}

    def _advance(self, step: Tensor, carry: Carry, memory: Tensors, row_offsets: Tensor) -> tuple[Carry, Tensors]:
        logits, states, outputs = self._call_step(step, carry.rows["token"], carry.states, memory)
        token = argmax(logits)
        score = amax(ops.log_softmax(at_least_float32(logits), axis=-1))
        done = carry.rows["done"]
        if self.end is not None:
            done = ops.logical_or(done, ops.equal(token, self.end))
        outputs = {"tokens": token, "scores": ops.cast(score, "float32"), **outputs}
        return Carry({"token": token, "done": done}, states), outputs

    def _build_outputs(self, rows: Tensors, steps: Tensors) -> Tensors:
        steps = {name: ops.swapaxes(x, 0, 1) for name, x in steps.items()}
        tokens = steps.pop("tokens")
        if self.end is None:
            is_valid = ops.ones_like(tokens, dtype="bool")
        else:
            is_end = ops.cast(ops.equal(tokens, self.end), "int32")
            is_valid = ops.equal(ops.cumsum(is_end, axis=1) - is_end, 0)  # no end token at an earlier step
        outputs = {name: where(is_valid, x, 0) for name, x in steps.items()}
        return {
            "tokens": where(is_valid, tokens, self.end or 0),
            "lengths": ops.sum(ops.cast(is_valid, "int32"), axis=1),
            "scores": ops.sum(outputs.pop("scores"), axis=1),
            **outputs,
        }
