"""Score definition of a call: a named function and its data."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from .._types import Tensor

ADDITIVE = "additive"
DOT_PRODUCT = "dot_product"
DISTANCE = "distance"


class Scoring(NamedTuple):
    """The scores of a call: a function and all that it reads.

    Attributes:
        name: `ADDITIVE`, `DOT_PRODUCT` or `DISTANCE`; None where an exporter gets the operations of the function.
        function: Maps the tensors, as keywords, to scores `B + (Tq, Tk)`, each of its query and key alone. With a name
            it is pure.
        tensors: `queries` and `keys`, projected where the layer projects them, and further weights of the layer.
        options: Numbers the function depends on.
    """

    name: str | None
    function: Callable[..., Tensor]
    tensors: Mapping[str, Tensor]
    options: Mapping[str, float] = {}

    def scores(self) -> Tensor:
        """The scores `B + (Tq, Tk)`; those of pairs that do not take part by their order may be any numbers."""
        return self.function(**self.tensors)
