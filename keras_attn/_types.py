"""Names for the types that every module of the package uses."""

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


class Masks(NamedTuple):
    """What a call may pass to say which pairs of query and key take part; None lets all of them."""

    valid_lens: Tensor | None
    attention_mask: Tensor | None
    queries_mask: Tensor | None
    keys_mask: Tensor | None
    values_mask: Tensor | None
