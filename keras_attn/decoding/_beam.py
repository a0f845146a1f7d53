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
from ._step_wiring import outputs_by_name

NO_SCORE = float("-inf")  # score of an absent sequence


class Beam(NamedTuple):
    """The W unfinished sequences of each row."""

    live: Tensor  # (n, W), sums of log-probabilities
    tokens: Tensor  # (n, W), last tokens
    codes: Tensor  # (n, W, L), all tokens with parents


class Finished(NamedTuple):
    """The K best finished sequences of each row."""

    best: Tensor  # (n, K), scores
    best_codes: Tensor  # (n, K, L), all tokens with parents
    best_lengths: Tensor  # (n, K)


@keras.saving.register_keras_serializable(package="keras_attn")
class BeamDecoding(Decoding):
    """Layer of `keras_attn.decoding.beam`, whose docstring describes the algorithm.

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
                "`best` must be at most `width`, the number of sequences in the beam. "
                f"Received: best={best}, width={width}. Make the beam wider."
            )
        self._beam_axes = (self.best,)
        self.length_penalty = _check_penalty(length_penalty)
        lengths = np.arange(1, self.max_length + 1)
        with np.errstate(over="ignore"):
            penalties = ((5 + lengths) / 6) ** self.length_penalty
            self._penalties = penalties.astype("float32")
        if not (np.isfinite(self._penalties).all() and self._penalties.all()):
            raise ValueError(
                f"`length_penalty` must have finite, nonzero factors in float32 for lengths up to {self.max_length}. "
                f"Received: length_penalty={length_penalty}."
            )
        # Stopping rule. A live sum s is at most 0 and never increases, so after step t no continuation can score above
        # s / p, with p the largest penalty of a length > t + 1. A row is done if its K-th finished score is >= s / p.
        largest_penalties = np.maximum.accumulate(penalties[::-1])[::-1]
        self._reachable = np.append(largest_penalties[1:], penalties[-1]).astype("float32")
        self._vocabulary: int = outputs_by_name(self.step)[self._names.logits].shape[-1]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        beam_config = {"width": self.width, "best": self.best, "length_penalty": self.length_penalty}
        return {**super().get_config(), **beam_config}

    def _make_initial_rows(self, encoded: Tensors, num_rows: Any) -> Tensors:
        width, best, max_length = self.width, self.best, self.max_length
        # All W sequences start with the same token: only the first counts, or the beam would hold W copies of it.
        live = np.array([0.0] + [NO_SCORE] * (width - 1), "float32")
        beam = Beam(
            live=ops.zeros((num_rows, width), "float32") + ops.convert_to_tensor(live),
            tokens=ops.repeat(ops.expand_dims(self._make_initial_tokens(encoded, num_rows), 1), width, axis=1),
            codes=ops.zeros((num_rows, width, max_length), "int32"),
        )
        rows = {**beam._asdict(), "done": ops.zeros((num_rows,), "bool"), "has_nan": ops.zeros((num_rows,), "bool")}
        if self.end is None:
            return rows
        finished = Finished(
            best=ops.full((num_rows, best), NO_SCORE, "float32"),
            best_codes=ops.zeros((num_rows, best, max_length), "int32"),
            best_lengths=ops.zeros((num_rows, best), "int32"),
        )
        return {**rows, **finished._asdict()}

    def _parent_of(self, codes: Tensor) -> Tensor:
        return codes // self._vocabulary

    def _token_of(self, codes: Tensor, parents: Tensor) -> Tensor:
        return codes - parents * self._vocabulary

    def _advance(self, step: Tensor, carry: Carry, memory: Tensors, row_offsets: Tensor) -> tuple[Carry, Tensors]:
        rows, width = carry.rows, self.width
        beam = Beam(*(rows[name] for name in Beam._fields))
        logits, states, outputs = self._call_step(step, ops.reshape(beam.tokens, (-1,)), carry.states, memory)
        sums = self._sum_log_probabilities(beam, logits)
        # Each runtime sorts NaN differently, so a row with NaN gets a NaN score, and NaN is removed from the order.
        is_nan = ops.isnan(sums)
        sums = ops.where(is_nan, NO_SCORE, sums)
        next_rows = {"done": rows["done"], "has_nan": ops.logical_or(rows["has_nan"], ops.any(is_nan, axis=-1))}
        # Each sequence has one continuation that ends, so at least W of the best 2 W continuations do not end.
        num_candidates = width if self.end is None else min(2 * width, width * self._vocabulary)
        live, codes = top_k(sums, num_candidates)
        if self.end is not None:
            is_end = ops.equal(codes % self._vocabulary, self.end)
            finished = self._add_finished(step, rows, live, codes, is_end)
            live, index = top_k(ops.where(is_end, NO_SCORE, live), width)
            codes = gather(codes, index)
            next_rows |= finished._asdict()
            next_rows["done"] = ops.greater_equal(
                finished.best[:, -1], live[:, 0] / take(ops.convert_to_tensor(self._reachable), step)
            )
        parents = self._parent_of(codes)
        parent_entries = ops.reshape(row_offsets + parents, (-1,))
        tokens = self._token_of(codes, parents)
        beam = Beam(live, tokens, self._write_codes(step, gather(beam.codes, parents), codes))
        next_states = {name: take(x, parent_entries) for name, x in states.items()}
        return Carry({**beam._asdict(), **next_rows}, next_states), outputs

    def _sum_log_probabilities(self, beam: Beam, logits: Tensor) -> Tensor:
        """Return the sums of log-probabilities of all continuations, by code, `(n, W V)`, for logits `(n W, V)`."""
        logits = at_least_float32(logits)
        # The softmax of a row of -inf, where no token is possible, would be NaN.
        is_impossible = ops.expand_dims(ops.equal(amax(logits), NO_SCORE), -1)
        scores = ops.cast(ops.where(is_impossible, NO_SCORE, ops.log_softmax(logits, axis=-1)), "float32")
        return ops.reshape(ops.reshape(beam.live, (-1, 1)) + scores, (-1, self.width * self._vocabulary))

    def _add_finished(self, step: Tensor, rows: Tensors, scores: Tensor, codes: Tensor, is_end: Tensor) -> Finished:
        """Return the K best finished sequences, including continuations (n, 2 W) that end among the first W."""
        scores, codes, is_end = (x[:, : self.width] for x in (scores, codes, is_end))
        scores = ops.where(is_end, scores / take(ops.convert_to_tensor(self._penalties), step), NO_SCORE)
        all_codes = self._write_codes(step, gather(rows["codes"], self._parent_of(codes)), codes)
        lengths = ops.full_like(codes, 1) * (step + 1)
        return self._select_best(rows, Finished(scores, all_codes, lengths))

    def _select_best(self, rows: Tensors, latest: Finished) -> Finished:
        """Return the K best of the finished sequences in `rows` and `latest`; earlier sequences win ties."""
        earlier = (rows[name] for name in Finished._fields)
        scores, codes, lengths = (ops.concatenate(pair, axis=1) for pair in zip(earlier, latest, strict=True))
        best, index = top_k(scores, self.best)
        return Finished(best, gather(codes, index), gather(lengths, index))

    def _write_codes(self, step: Tensor, history: Tensor, codes: Tensor) -> Tensor:
        """Return `history` (n, k, L) with the codes (n, k) of one step."""
        is_step = ops.equal(ops.arange(self.max_length, dtype="int32"), step)
        return ops.where(is_step, ops.expand_dims(codes, -1), history)

    def _build_outputs(self, rows: Tensors, steps: Tensors) -> Tensors:
        max_length, penalty = self.max_length, float(self._penalties[-1])
        if self.end is None:
            scores, codes = rows["live"][:, : self.best], rows["codes"][:, : self.best]
            best = Finished(scores / penalty, codes, ops.full_like(codes[:, :, 0], max_length))
        else:
            # Live sequences count as finished at length L. In a row that was done earlier none of them can be among the
            # K best, by the stopping rule.
            live = rows["live"] / penalty
            best = self._select_best(rows, Finished(live, rows["codes"], ops.full_like(rows["tokens"], max_length)))
        has_nan = ops.expand_dims(rows["has_nan"], -1)
        lengths = ops.where(ops.logical_and(best.best > NO_SCORE, ops.logical_not(has_nan)), best.best_lengths, 0)
        is_valid = ops.arange(max_length, dtype="int32") < ops.expand_dims(lengths, -1)
        parents = self._parent_of(best.best_codes)
        return {
            "tokens": where(is_valid, self._token_of(best.best_codes, parents), self.end or 0),
            "lengths": lengths,
            "scores": ops.where(has_nan, float("nan"), best.best),
            **{name: where(is_valid, self._gather_by_parent(x, parents), 0) for name, x in steps.items()},
        }

    def _gather_by_parent(self, steps: Tensor, parents: Tensor) -> Tensor:
        """Gather the step outputs `(L, B W, ...)` of parents `(B, K, L)`: `(B, K, L, ...)`."""
        num_entries = ops.shape(steps)[1]  # B W
        offsets = ops.reshape(ops.arange(0, num_entries, self.width, dtype="int32"), (-1, 1, 1))
        index = ops.arange(self.max_length, dtype="int32") * num_entries + offsets + parents
        flat = ops.reshape(steps, (self.max_length * num_entries, *ops.shape(steps)[2:]))
        outputs = take(flat, ops.reshape(index, (-1,)))
        return ops.reshape(outputs, (*ops.shape(parents), *ops.shape(steps)[2:]))


def _check_penalty(penalty: Any) -> float:
    """Check the exponent of the length penalty, and return it as a float."""
    if isinstance(penalty, bool) or not isinstance(penalty, Real) or not math.isfinite(penalty):
        raise ValueError(f"`length_penalty` must be a finite number. Received: length_penalty={penalty!r}.")
    return float(penalty)
