"""Score definition of a call: a named function and its data."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from .._types import Tensor

ADDITIVE = "additive"
DOT_PRODUCT = "dot_product"
DISTANCE = "distance"


class Scoring(NamedTuple):
    """Scoring function of a call with its arguments.

    The function maps the tensors, as keywords, to scores `B + (Tq, Tk)`, where the score of a pair depends on its query
    and key only. A function with a name is pure, and an exporter may replace it; one without is traced.
    """

    name: str | None  # `ADDITIVE`, `DOT_PRODUCT` or `DISTANCE`
    function: Callable[..., Tensor]
    tensors: Mapping[str, Tensor]  # `queries` and `keys`, projected if the layer projects them, and further weights
    options: Mapping[str, float] = {}  # constants of the function, for exporters

    def scores(self) -> Tensor:
        """Return the scores `B + (Tq, Tk)`, with arbitrary values for pairs outside of a causal mask or window."""
        return self.function(**self.tensors)
