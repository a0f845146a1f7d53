"""Types of tensors, shapes and call arguments."""

from typing import Any, NamedTuple, TypeAlias

# Tensor of TensorFlow, JAX or torch, or `keras.KerasTensor`, whose shape may contain None. No common base class.
Tensor: TypeAlias = Any

Shape: TypeAlias = tuple[int | None, ...]

# Numbers of unmasked keys before and after a query's own position; None for no bound.
Window: TypeAlias = tuple[int | None, int | None]


class BandMask(NamedTuple):
    """Band mask: a causal mask, a window, or both; masks pairs by their relative position."""

    causal: bool = False
    window: Window | None = None

    @property
    def window_limits(self) -> Window:
        """Numbers of unmasked keys before and after a query's own position; None for no bound."""
        left, right = self.window or (None, None)
        return left, 0 if self.causal else right  # a window has at least 0 keys after the position


class Masks(NamedTuple):
    """Masks of a call; None masks nothing."""

    valid_lens: Tensor | None = None  # integers `B` or `B + (Tq,)`
    attention_mask: Tensor | None = None  # booleans that broadcast to `B + (Tq, Tk)` or `B + (H, Tq, Tk)`
    queries_mask: Tensor | None = None  # booleans `B + (Tq,)`
    keys_mask: Tensor | None = None  # booleans `B + (Tk,)`
    values_mask: Tensor | None = None  # booleans `B + (Tk,)`


class Heads(NamedTuple):
    """Numbers of heads on the last axis of queries (H) and of keys and values (G); G divides H."""

    num_query_heads: int = 1
    num_kv_heads: int = 1
