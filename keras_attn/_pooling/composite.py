"""Composite operations: a layer's maths as a named pure function that an exporter may replace.

An exporter sets an evaluator while it traces a model, and the evaluator is called with the composite of every layer
call. It may compute the composite in another form, with the results of the composite's function.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from keras import ops

from .._maths.head_masks import expand_pairs
from .._maths.masks import intersect, zero_masked
from .._maths.normalizers import SOFTMAX
from .._shapes import dtype_of
from .._types import BandMask, Heads, Tensor
from .attention_call import AttentionCall
from .pool import evaluate_plain
from .scoring import DOT_PRODUCT, Scoring

# Reason why a call is not a composite.
DROPOUT_REASON = "it drops weights, since it is called with `training=True`"


class Composite(NamedTuple):
    """Call of a layer as a pure function and its arguments.

    The function maps the tensors, as keywords, to the output `B + (Tq, H Dv)` and the weights, `B + (Tq, Tk)` or
    `B + (H, Tq, Tk)` with heads. The tensors are `values` and the tensors of the scoring function, `B + (T, ...)`, with
    arbitrary values at masked positions; `valid_lens`, integers `B` or `B + (Tq,)`; `keys_mask`, booleans `B + (Tk,)`;
    `mask`, booleans, and `bias`, floats, both of the rank of the weights, to which they broadcast.
    """

    name: str  # name of the scoring function
    layer: Any
    function: Callable[..., tuple[Tensor, Tensor]]
    tensors: Mapping[str, Tensor]
    options: Mapping[str, float]  # options of the scoring function
    heads: Heads | None  # None if the weights have no head axis
    band: BandMask
    normalizer: str  # a key of `NORMALIZERS`


class Evaluator(Protocol):
    """Function that computes composites in another form, with the same results."""

    # True if fully masked queries and keys must be zeroed before their projections. In exact arithmetic the result does
    # not depend on them; in int8 they share a quantization scale with unmasked positions.
    needs_zeroed_padding: bool
    reasons: dict[int, str]  # id of a layer -> reason why a call of the layer is not a composite

    def __call__(self, composite: Composite, returns_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Return the output, and the weights or None; shapes as in `Composite`."""


_EVALUATOR: ContextVar[Evaluator | None] = ContextVar("keras_attn_evaluator", default=None)


def current_evaluator() -> Evaluator | None:
    """Return the active evaluator, or None."""
    return _EVALUATOR.get()


@contextlib.contextmanager
def use_evaluator(evaluator: Evaluator) -> Iterator[None]:
    """Make `evaluator` compute the composites of all layer calls inside of the context."""
    token = _EVALUATOR.set(evaluator)
    try:
        yield
    finally:
        _EVALUATOR.reset(token)


def make_composite(call: AttentionCall, scoring: Scoring, layer: Any, normalizer: str = SOFTMAX) -> Composite:
    """Return the composite of a call with values `B + (Tk, G Dv)`.

    `queries_mask` is not part of the composite: the caller zeroes the results of masked queries.
    """
    tensors, masks, heads = {**scoring.tensors, "values": call.values}, call.masks, call.heads
    if masks.queries_mask is not None and scoring.name != DOT_PRODUCT:
        # An exporter chooses the form of these scores by the magnitude of all queries, masked ones included.
        tensors["queries"] = zero_masked(tensors["queries"], masks.queries_mask)
    if masks.valid_lens is not None:
        tensors["valid_lens"] = masks.valid_lens
    keys_mask = intersect(masks.keys_mask, masks.values_mask)
    if keys_mask is not None:
        tensors["keys_mask"] = keys_mask
    bias = None if call.bias is None else ops.cast(call.bias, dtype_of(call.values))
    rank = len(call.values.shape)
    for name, pairwise in (("mask", masks.attention_mask), ("bias", bias)):
        if pairwise is not None:
            tensors[name] = pairwise if heads is None else expand_pairs(pairwise, rank)
            while len(tensors[name].shape) < rank + (heads is not None):
                tensors[name] = ops.expand_dims(tensors[name], 0)
    function = partial(evaluate_plain, scoring.function, heads, call.band, normalizer)
    return Composite(scoring.name or "", layer, function, tensors, scoring.options, heads, call.band, normalizer)
