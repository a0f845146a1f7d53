"""Score definition of a call: a named function and its data."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from .._types import Tensor

ADDITIVE = "additive"
DOT_PRODUCT = "dot_product"
DISTANCE = "distance"


class Scoring(NamedTuple):
    """The scores of a call: a function and all that it reads.

    The function maps the tensors, as keywords, to scores `B + (Tq, Tk)`, each of its query and key alone. With a name
    it is pure; without one an exporter gets its operations.
    """

    name: str | None  # `ADDITIVE`, `DOT_PRODUCT` or `DISTANCE`
    function: Callable[..., Tensor]
    tensors: Mapping[str, Tensor]  # `queries` and `keys`, projected if the layer projects them, and further weights
    options: Mapping[str, float] = {}  # numbers that the function depends on

    def scores(self) -> Tensor:
        """The scores `B + (Tq, Tk)`; those of pairs that do not take part by their order may be any numbers."""
        return self.function(**self.tensors)
