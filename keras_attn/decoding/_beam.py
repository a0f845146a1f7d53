"""Beam search."""

import math
from numbers import Real
from typing import Any, NamedTuple

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

NO_SCORE = float("-inf")  # of a sequence that does not exist


class Beam(NamedTuple):
    """The W sequences of each row that go on: sums of log-probabilities, last tokens, and the codes of all tokens."""

    live: Tensor  # (n, W)
    tokens: Tensor  # (n, W)
    codes: Tensor  # (n, W, L)


class Finished(NamedTuple):
    """The K best finished sequences of each row: scores, the codes of all tokens, and lengths."""

    best: Tensor  # (n, K)
    best_codes: Tensor  # (n, K, L)
    best_lengths: Tensor  # (n, K)


@keras.saving.register_keras_serializable(package="keras_attn")
class BeamDecoding(Decoding):
    """The layer of `keras_attn.decoding.beam`, whose docstring has the algorithm.

    Tokens are stored as codes, `parent * V + token`, where `parent` is the index in the beam of the sequence that the
    token continues. The same index selects the step outputs that belong to the token.
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
        live = np.array([0.0] + [NO_SCORE] * (width - 1), "float32")  # at first all are the same sequence
        beam = Beam(
            live=ops.zeros((count, width), "float32") + ops.convert_to_tensor(live),
            tokens=ops.repeat(ops.expand_dims(self._first_tokens(given, count), 1), width, axis=1),
            codes=ops.zeros((count, width, limit), "int32"),
        )
        rows = {**beam._asdict(), "done": ops.zeros((count,), "bool"), "has_nan": ops.zeros((count,), "bool")}
        if self.end is None:
            return rows
        finished = Finished(
            best=ops.full((count, best), NO_SCORE, "float32"),
            best_codes=ops.zeros((count, best, limit), "int32"),
            best_lengths=ops.zeros((count, best), "int32"),
        )
        return {**rows, **finished._asdict()}

    def _parent_of(self, codes: Tensor) -> Tensor:
        return codes // self._vocabulary

    def _token_of(self, codes: Tensor, parents: Tensor) -> Tensor:
        return codes - parents * self._vocabulary

    def _advance(self, number: Tensor, carry: Carry, memory: Tensors, entries: Tensor) -> tuple[Carry, Tensors]:
        rows, width = carry.rows, self.width
        beam = Beam(*(rows[name] for name in Beam._fields))
        logits, states, outputs = self._stepped(number, ops.reshape(beam.tokens, (-1,)), carry.states, memory)
        sums = self._sums(beam, logits)
        # NaN has no place in an order, and another one in each runtime: a row that meets it has no answer.
        is_nan = ops.isnan(sums)
        sums = ops.where(is_nan, NO_SCORE, sums)
        following = {"done": rows["done"], "has_nan": ops.logical_or(rows["has_nan"], ops.any(is_nan, axis=-1))}
        # Of each sequence one can end, so that twice the width holds enough that go on.
        most = width if self.end is None else min(2 * width, width * self._vocabulary)
        live, codes = top_k(sums, most)
        if self.end is not None:
            ends = ops.equal(codes % self._vocabulary, self.end)
            finished = self._with_ended(number, rows, live, codes, ends)
            live, place = top_k(ops.where(ends, NO_SCORE, live), width)
            codes = gather(codes, place)
            following |= finished._asdict()
            following["done"] = ops.greater_equal(
                finished.best[:, -1], live[:, 0] / take(ops.convert_to_tensor(self._reachable), number)
            )
        parents = self._parent_of(codes)
        sources = ops.reshape(entries + parents, (-1,))
        tokens = self._token_of(codes, parents)
        beam = Beam(live, tokens, self._written(number, gather(beam.codes, parents), codes))
        return Carry({**beam._asdict(), **following}, {name: take(x, sources) for name, x in states.items()}), outputs

    def _sums(self, beam: Beam, logits: Tensor) -> Tensor:
        """The sums of the log-probabilities of all continuations by code, `(n, W V)`."""
        logits = at_least_float32(logits)
        # If no token can be next, a softmax would be of nothing.
        is_dead = ops.expand_dims(ops.equal(amax(logits), NO_SCORE), -1)
        scores = ops.cast(ops.where(is_dead, NO_SCORE, ops.log_softmax(logits, axis=-1)), "float32")
        return ops.reshape(ops.reshape(beam.live, (-1, 1)) + scores, (-1, self.width * self._vocabulary))

    def _with_ended(self, number: Tensor, rows: Tensors, scores: Tensor, codes: Tensor, ends: Tensor) -> Finished:
        """The best finished sequences, with those that end in this step among the first W."""
        scores, codes, ends = (x[:, : self.width] for x in (scores, codes, ends))
        scores = ops.where(ends, scores / take(ops.convert_to_tensor(self._penalties), number), NO_SCORE)
        latest = self._written(number, gather(rows["codes"], self._parent_of(codes)), codes)
        lengths = ops.full_like(codes, 1) * (number + 1)
        return self._best_of(rows, Finished(scores, latest, lengths))

    def _best_of(self, rows: Tensors, latest: Finished) -> Finished:
        """The K best of the finished sequences and some more; of equal ones those that were there before."""
        before = (rows[name] for name in Finished._fields)
        scores, *others = (ops.concatenate(pair, axis=1) for pair in zip(before, latest, strict=True))
        best, place = top_k(scores, self.best)
        return Finished(best, *(gather(x, place) for x in others))

    def _written(self, number: Tensor, history: Tensor, codes: Tensor) -> Tensor:
        """Codes `(n, k, L)` with those of one step, `(n, k)`."""
        here = ops.equal(ops.arange(self.max_length, dtype="int32"), number)
        return ops.where(here, ops.expand_dims(codes, -1), history)

    def _answer(self, rows: Tensors, steps: Tensors) -> Tensors:
        limit, longest = self.max_length, float(self._penalties[-1])
        if self.end is None:
            scores, codes = rows["live"][:, : self.best], rows["codes"][:, : self.best]
            best = Finished(scores / longest, codes, ops.full_like(codes[:, :, 0], limit))
        else:
            # Of a row that was done before, nothing in the beam can pass what is found, as long as this either.
            live = rows["live"] / longest
            best = self._best_of(rows, Finished(live, rows["codes"], ops.full_like(rows["tokens"], limit)))
        has_nan = ops.expand_dims(rows["has_nan"], -1)
        lengths = ops.where(ops.logical_and(best.best > NO_SCORE, ops.logical_not(has_nan)), best.best_lengths, 0)
        there = ops.arange(limit, dtype="int32") < ops.expand_dims(lengths, -1)
        parents = self._parent_of(best.best_codes)
        return {
            "tokens": where(there, self._token_of(best.best_codes, parents), self.end or 0),
            "lengths": lengths,
            "scores": ops.where(has_nan, float("nan"), best.best),
            **{name: where(there, self._of_parents(x, parents), 0) for name, x in steps.items()},
        }

    def _of_parents(self, steps: Tensor, parents: Tensor) -> Tensor:
        """The outputs of all steps, `(L, B W, ...)`, that belong to parents `(B, K, L)`: `(B, K, L, ...)`."""
        entries = ops.shape(steps)[1]
        first = ops.reshape(ops.arange(0, entries, self.width, dtype="int32"), (-1, 1, 1))
        place = ops.arange(self.max_length, dtype="int32") * entries + first + parents
        found = take(ops.reshape(steps, (self.max_length * entries, *ops.shape(steps)[2:])), ops.reshape(place, (-1,)))
        return ops.reshape(found, (*ops.shape(parents), *ops.shape(steps)[2:]))


def _check_penalty(penalty: Any) -> float:
    """Returns the exponent of the length penalty as a finite float."""
    if isinstance(penalty, bool) or not isinstance(penalty, Real) or not math.isfinite(penalty):
        raise ValueError(f"`length_penalty` must be a finite number. Received: length_penalty={penalty!r}.")
    return float(penalty)
