"""Composite operations: a layer's maths as a named pure function that an exporter may replace.

This package never gives a composite another meaning than that function. Whoever writes a layer's maths in another way,
as an exporter does, sets an evaluator for as long as it traces a model, and gets the composites of all layers called.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from keras import ops

from .._maths.head_masks import add_head_axis_to_pairwise
from .._maths.masks import hide, intersect
from .._maths.normalizers import SOFTMAX
from .._shapes import dtype_of
from .._types import Heads, Pairs, Tensor
from .attention_call import AttentionCall
from .pool import evaluate_plain
from .scoring import DOT_PRODUCT, Scoring

DROPS = "it drops weights, since it is called with `training=True`"  # a reason of calls that are no composites


class Composite(NamedTuple):
    """One call of a layer as a pure function and its arguments.

    The function maps the tensors, as keywords, to the output `B + (Tq, H Dv)` and the weights, `B + (Tq, Tk)` or
    `B + (H, Tq, Tk)` with heads. The tensors are those of the scoring function and `values`, `B + (T, ...)`, all of
    which may hold anything where they are masked; and the masks of the call: `valid_lens`, integers `B` or `B + (Tq,)`;
    `keys_mask`, booleans `B + (Tk,)`; and `mask`, booleans that broadcast to the weights and have all their axes.
    """

    name: str  # of the scoring function
    layer: Any
    function: Callable[..., tuple[Tensor, Tensor]]
    tensors: Mapping[str, Tensor]
    options: Mapping[str, float]  # of the scoring function
    heads: Heads | None  # None if the weights have no axis for them
    pairs: Pairs
    normalizer: str  # a key of `NORMALIZERS`


class Evaluator(Protocol):
    """Computes composites."""

    # Whether masked queries and keys must be zero before they are projected. The result does not depend on them, but a
    # file in which they share a scale with others, as in int8, would.
    hides_masked: bool
    reasons: dict[int, str]  # by the identity of a layer, why a call of the layer is no composite

    def __call__(self, composite: Composite, returns_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Returns the output, and the weights where they are wanted, else None."""


_EVALUATOR: ContextVar[Evaluator | None] = ContextVar("keras_attn_evaluator", default=None)


def current_evaluator() -> Evaluator | None:
    """The evaluator that is set, or None."""
    return _EVALUATOR.get()


@contextlib.contextmanager
def evaluated_by(evaluator: Evaluator) -> Iterator[None]:
    """Lets `evaluator` compute every composite of the layers that are called within the context."""
    token = _EVALUATOR.set(evaluator)
    try:
        yield
    finally:
        _EVALUATOR.reset(token)


def composite_of(call: AttentionCall, scoring: Scoring, layer: Any, normalizer: str = SOFTMAX) -> Composite:
    """Return the composite of one call, with the scoring of the layer, or of one head, and values `B + (Tk, G Dv)`.

    It has no `queries_mask`, with which a query is without keys: that is for whoever reads the result.
    """
    tensors, masks, heads = {**scoring.tensors, "values": call.values}, call.masks, call.heads
    if masks.queries_mask is not None and scoring.name != DOT_PRODUCT:
        # The form of other scores hangs on how large all queries are.
        tensors["queries"] = hide(tensors["queries"], masks.queries_mask)
    if masks.valid_lens is not None:
        tensors["valid_lens"] = masks.valid_lens
    keys_mask = intersect(masks.keys_mask, masks.values_mask)
    if keys_mask is not None:
        tensors["keys_mask"] = keys_mask
    bias = None if call.bias is None else ops.cast(call.bias, dtype_of(call.values))
    rank = len(call.values.shape)
    for name, pairwise in (("mask", masks.attention_mask), ("bias", bias)):
        if pairwise is not None:
            tensors[name] = pairwise if heads is None else add_head_axis_to_pairwise(pairwise, rank)
            while len(tensors[name].shape) < rank + (heads is not None):
                tensors[name] = ops.expand_dims(tensors[name], 0)
    function = partial(evaluate_plain, scoring.function, heads, call.pairs, normalizer)
    return Composite(scoring.name or "", layer, function, tensors, scoring.options, heads, call.pairs, normalizer)
