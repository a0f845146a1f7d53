"""Types of call arguments."""

from typing import Any, NamedTuple, TypeAlias

# A tensor of TensorFlow, JAX or torch, or a `keras.KerasTensor`, whose shape may hold None: they share no base class.
Tensor: TypeAlias = Any

Shape: TypeAlias = tuple[int | None, ...]

# How many keys before and after its own position a query sees; None for all of them.
Window: TypeAlias = tuple[int | None, int | None]


class Pairs(NamedTuple):
    """Which pairs of positions a query may see by their order alone."""

    causal: bool = False
    window: Window | None = None

    @property
    def band(self) -> Window:
        """How many keys before and after its own position a query may see; None for all of them."""
        left, right = self.window or (None, None)
        return left, 0 if self.causal else right  # a window's own is at least that


class Masks(NamedTuple):
    """What a call may pass to say which pairs of query and key take part; None lets all of them."""

    valid_lens: Tensor | None = None
    attention_mask: Tensor | None = None
    queries_mask: Tensor | None = None
    keys_mask: Tensor | None = None
    values_mask: Tensor | None = None


class Heads(NamedTuple):
    """How many heads lie side by side on the last axis: H of the queries, and G of the keys and values.

    Each head of keys serves `H / G` heads of queries.
    """

    of_queries: int = 1
    of_keys: int = 1
