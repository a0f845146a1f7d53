"""Beam search."""

import math
from numbers import Real
from typing import Any

import keras
import numpy as np
from keras import ops

from .._checks.constructor_arguments import check_positive_integer
from .._shapes import at_least_float32
from .._types import Tensor
from ._decoding_layer import Decoding
from ._loop_state import Carry, Tensors
from ._ops import amax, gather, take, top_k, where
from ._step_wiring import outputs_of

NONE = float("-inf")  # the score of a sequence that there is not


@keras.saving.register_keras_serializable(package="keras_attn")
class BeamDecoding(Decoding):
    """The layer of `keras_attn.decoding.beam`, which says what it computes.

    A token of a sequence is kept as a code, `slot V + token`: the slot is the place in the beam of what it went on
    from, and so of the step's outputs that belong to it.
    """

    def __init__(
        self, *args: Any, width: int = 4, best: int | None = None, length_penalty: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.width = check_positive_integer("width", width)
        self.best = self.width if best is None else check_positive_integer("best", best)
        if self.best > self.width:
            raise ValueError(
                "`best` must be at most `width`: a beam keeps no more sequences. "
                f"Received: best={best}, width={width}. Make the beam wider."
            )
        self._ranks = (self.best,)
        self.length_penalty = _check_penalty(length_penalty)
        lengths = np.arange(1, self.max_length + 1)
        with np.errstate(over="ignore"):
            penalties = ((5 + lengths) / 6) ** self.length_penalty
            self._penalties = penalties.astype("float32")
        if not (np.isfinite(self._penalties).all() and self._penalties.all()):
            raise ValueError(
                f"`length_penalty` must leave a factor in float32 for each length up to {self.max_length}. "
                f"Received: length_penalty={length_penalty}."
            )
        # The one that a sequence can still reach after so many steps, with which its score would be best.
        later = np.maximum.accumulate(penalties[::-1])[::-1]
        self._reachable = np.append(later[1:], penalties[-1]).astype("float32")
        self._vocabulary: int = outputs_of(self.step)[self._names.logits].shape[-1]

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        own = {"width": self.width, "best": self.best, "length_penalty": self.length_penalty}
        return {**super().get_config(), **own}

    def _first_rows(self, given: Tensors, count: Any) -> Tensors:
        width, best, limit = self.width, self.best, self.max_length
        live = np.array([0.0] + [NONE] * (width - 1), "float32")  # at first all are the same sequence
        rows = {
            "live": ops.zeros((count, width), "float32") + ops.convert_to_tensor(live),
            "tokens": ops.repeat(ops.expand_dims(self._first_tokens(given, count), 1), width, axis=1),
            "codes": ops.zeros((count, width, limit), "int32"),
            "done": ops.zeros((count,), "bool"),
            "has_nan": ops.zeros((count,), "bool"),
        }
        if self.end is not None:
            rows |= {
                "best": ops.full((count, best), NONE, "float32"),
                "best_codes": ops.zeros((count, best, limit), "int32"),
                "best_lengths": ops.zeros((count, best), "int32"),
            }
        return rows

    def _advance(self, number: Tensor, carry: Carry, memory: Tensors, entries: Tensor) -> tuple[Carry, Tensors]:
        width, vocabulary, rows = self.width, self._vocabulary, carry.rows
        logits, states, outputs = self._stepped(number, ops.reshape(rows["tokens"], (-1,)), carry.states, memory)
        logits = at_least_float32(logits)
        # Where no token can be next, a softmax would be of nothing.
        is_dead = ops.expand_dims(ops.equal(amax(logits), NONE), -1)
        scores = ops.cast(ops.where(is_dead, NONE, ops.log_softmax(logits, axis=-1)), "float32")
        scores = ops.reshape(ops.reshape(rows["live"], (-1, 1)) + scores, (-1, width * vocabulary))
        # NaN has no place in an order, and another one in each runtime: a row that meets it has no answer.
        is_nan = ops.isnan(scores)
        scores = ops.where(is_nan, NONE, scores)
        has_nan = ops.logical_or(rows["has_nan"], ops.any(is_nan, axis=-1))
        # Of each sequence one can end, so that twice the width holds enough that go on.
        most = width if self.end is None else min(2 * width, width * vocabulary)
        scores, codes = top_k(scores, most)
        ended: Tensors = {}
        if self.end is not None:
            ends = ops.equal(codes % vocabulary, self.end)
            ended = self._with_ended(number, rows, scores, codes, ends)
            scores, place = top_k(ops.where(ends, NONE, scores), width)
            codes = gather(codes, place)
            ended["done"] = ops.greater_equal(
                ended["best"][:, -1], scores[:, 0] / take(ops.convert_to_tensor(self._reachable), number)
            )
        slots = codes // vocabulary
        parents = ops.reshape(entries + slots, (-1,))
        following = {
            "live": scores,
            "tokens": codes - slots * vocabulary,
            "codes": self._written(number, gather(rows["codes"], slots), codes),
            "done": rows["done"],
            "has_nan": has_nan,
            **ended,
        }
        return Carry(following, {name: take(x, parents) for name, x in states.items()}), outputs

    def _with_ended(self, number: Tensor, rows: Tensors, scores: Tensor, codes: Tensor, ends: Tensor) -> Tensors:
        """The best sequences that have ended, with those that end in this step among the first W."""
        scores, codes, ends = (x[:, : self.width] for x in (scores, codes, ends))
        scores = ops.where(ends, scores / take(ops.convert_to_tensor(self._penalties), number), NONE)
        latest = self._written(number, gather(rows["codes"], codes // self._vocabulary), codes)
        lengths = ops.full_like(codes, 1) * (number + 1)
        return self._best_of(rows, {"best": scores, "best_codes": latest, "best_lengths": lengths})

    def _best_of(self, before: Tensors, latest: Tensors) -> Tensors:
        """The K best of two groups; of equal ones those that were there before."""
        joined = {name: ops.concatenate([before[name], x], axis=1) for name, x in latest.items()}
        scores, place = top_k(joined.pop("best"), self.best)
        return {"best": scores, **{name: gather(x, place) for name, x in joined.items()}}

    def _written(self, number: Tensor, history: Tensor, codes: Tensor) -> Tensor:
        """Codes `(n, k, L)` with those of one step, `(n, k)`."""
        here = ops.equal(ops.arange(self.max_length, dtype="int32"), number)
        return ops.where(here, ops.expand_dims(codes, -1), history)

    def _answer(self, rows: Tensors, steps: Tensors) -> Tensors:
        limit, longest = self.max_length, float(self._penalties[-1])
        if self.end is None:
            scores, codes = rows["live"][:, : self.best], rows["codes"][:, : self.best]
            best = {"best": scores / longest, "best_codes": codes}
            best["best_lengths"] = ops.full_like(codes[:, :, 0], limit)
        else:
            # Of a row that was done before, nothing in the beam can pass what is found, as long as this either.
            live = rows["live"] / longest
            lengths = ops.full_like(rows["tokens"], limit)
            best = self._best_of(rows, {"best": live, "best_codes": rows["codes"], "best_lengths": lengths})
        has_nan = ops.expand_dims(rows["has_nan"], -1)
        lengths = ops.where(ops.logical_and(best["best"] > NONE, ops.logical_not(has_nan)), best["best_lengths"], 0)
        there = ops.arange(limit, dtype="int32") < ops.expand_dims(lengths, -1)
        slots = best["best_codes"] // self._vocabulary
        return {
            "tokens": where(there, best["best_codes"] - slots * self._vocabulary, self.end or 0),
            "lengths": lengths,
            "scores": ops.where(has_nan, float("nan"), best["best"]),
            **{name: where(there, self._of_slots(x, slots), 0) for name, x in steps.items()},
        }

    def _of_slots(self, steps: Tensor, slots: Tensor) -> Tensor:
        """What belongs to slots `(B, K, L)` of what was kept, `(L, B W, ...)`: `(B, K, L, ...)`."""
        entries = ops.shape(steps)[1]
        first = ops.reshape(ops.arange(0, entries, self.width, dtype="int32"), (-1, 1, 1))
        place = ops.arange(self.max_length, dtype="int32") * entries + first + slots
        found = take(ops.reshape(steps, (self.max_length * entries, *ops.shape(steps)[2:])), ops.reshape(place, (-1,)))
        return ops.reshape(found, (*ops.shape(slots), *ops.shape(steps)[2:]))


def _check_penalty(penalty: Any) -> float:
    """Returns the exponent of the length penalty as a finite float."""
    if isinstance(penalty, bool) or not isinstance(penalty, Real) or not math.isfinite(penalty):
        raise ValueError(f"`length_penalty` must be a finite number. Received: length_penalty={penalty!r}.")
    return float(penalty)
