"""Where an exporter takes hold of a layer: its maths as one pure function of named tensors.

This package never gives a composite another meaning than that function. Whoever writes a layer's maths in another way,
as an exporter does, sets an evaluator for as long as it traces a model, and gets the composites of all layers called.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from keras import ops

from ._checks import dtype_of
from ._masking import hide, intersect, lengths_mask
from ._normalizers import NORMALIZERS, SOFTMAX
from ._types import Tensor

DOT_PRODUCT = "dot_product"


class Scoring(NamedTuple):
    """A scoring function by name, with all that it reads.

    Attributes:
        name: `"additive"` or `DOT_PRODUCT`.
        function: Pure: maps the tensors, as keywords, to scores `B + (Tq, Tk)`, each of its query and key alone.
        tensors: `queries` and `keys`, projected where the layer projects them, and further weights of the layer.
        options: Numbers the function depends on.
    """

    name: str
    function: Callable[..., Tensor]
    tensors: Mapping[str, Tensor]
    options: Mapping[str, float]


class Composite(NamedTuple):
    """One call of a layer as a pure function and its arguments.

    Attributes:
        name: The name of the scoring function.
        layer: The layer.
        function: Pure: maps the tensors, as keywords, to the output `B + (Tq, Dv)` and the weights `B + (Tq, Tk)`.
        tensors: Those of the scoring function and `values`, all of which may hold anything where they are masked;
            `valid_lens` of shape `B`, if each example has a length; and `mask`, if there are further masks: booleans
            that broadcast to the weights and have all their axes.
        options: Those of the scoring function.

    The weights are a softmax over the keys that take part.
    """

    name: str
    layer: Any
    function: Callable[..., tuple[Tensor, Tensor]]
    tensors: Mapping[str, Tensor]
    options: Mapping[str, float]


class Evaluator(Protocol):
    """Computes composites.

    Attributes:
        hides_unseen: Whether queries and keys that are masked must be zeros before a layer projects them. The result
            does not depend on them; but a file in which they share a scale with others, as in int8, would.
    """

    hides_unseen: bool

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


def composite_of(
    scoring: Scoring, values: Tensor, valid_lens: Tensor | None, mask: Tensor | None, layer: Any
) -> Composite:
    """The composite of one call.

    Args:
        scoring: The layer's.
        values: `B + (Tk, Dv)`.
        valid_lens: Integers `B`, or None.
        mask: All other masks: booleans that broadcast to `B + (Tq, Tk)`, or None.
        layer: The layer.
    """
    tensors = {**scoring.tensors, "values": values}
    if valid_lens is not None:
        tensors["valid_lens"] = valid_lens
    if mask is not None:
        while len(mask.shape) < len(values.shape):
            mask = ops.expand_dims(mask, 0)
        tensors["mask"] = mask
    return Composite(scoring.name, layer, partial(_pool_of, scoring.function), tensors, scoring.options)


def pool(
    scores: Tensor,
    values: Tensor,
    mask: Tensor | None,
    drop: Callable[[Tensor], Tensor] | None = None,
    normalizer: str = SOFTMAX,
) -> tuple[Tensor, Tensor]:
    """Weights of scores `B + (Tq, Tk)`, and the mean of values `B + (Tk, Dv)` under them.

    Args:
        scores: For each pair of query and key.
        values: They may hold anything where no query sees them.
        mask: Booleans that broadcast to the scores, or None.
        drop: Applied to the weights before the mean is taken.
        normalizer: What makes weights of the scores: a key of `NORMALIZERS`.

    Returns:
        The output `B + (Tq, Dv)`, and the weights before `drop`, both of the dtype of the values.
    """
    weights = ops.cast(NORMALIZERS[normalizer](scores, mask), dtype_of(values))
    if mask is not None:
        values = hide(values, ops.any(mask, axis=-2))
    output = ops.matmul(weights if drop is None else drop(weights), values)
    return ops.cast(output, dtype_of(values)), weights  # on torch Keras gives float32 for float64


def _pool_of(
    score: Callable[..., Tensor],
    *,
    values: Tensor,
    valid_lens: Tensor | None = None,
    mask: Tensor | None = None,
    **read_by_score: Tensor,
) -> tuple[Tensor, Tensor]:
    if valid_lens is not None:
        valid_lens = lengths_mask(valid_lens, len(values.shape), ops.shape(values)[-2])
    mask = intersect(valid_lens, mask)
    return pool(score(**read_by_score), values, mask)
