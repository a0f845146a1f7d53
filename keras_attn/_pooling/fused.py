"""Pooling by scaled dot products in one operation of the backend, where that has a kernel that keeps no scores.

`keras.ops.dot_product_attention` promises nothing for queries without keys: they get keys here, and what it makes of
them is not read. All else that the layers promise of masks follows from a bias of minus infinity.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
from keras import ops

from .._keras.private import is_transformed
from .._maths.masks import hide, hide_unseen
from .._maths.scores import dot_product_scores
from .._tensors import Tensor, dtype_of
from .composite import pool

# As benchmarks/training.py measures it. On TensorFlow and, on a CPU, on JAX it is the same operations again.
FASTER_ON = ("torch",)

_HARMLESS_FOR: ContextVar[Any] = ContextVar("keras_attn_harmless_for", default=None)


@contextlib.contextmanager
def masked_is_harmless(layer: Any, told: bool = True) -> Iterator[None]:
    """Tells a layer that what it gets is finite wherever it is masked, and that no row without keys will be read.

    Replacing the one and the other by zeros, as a layer called by itself must, would be done twice.
    """
    token = _HARMLESS_FOR.set(layer if told else None)
    try:
        yield
    finally:
        _HARMLESS_FOR.reset(token)


def is_masked_harmless(layer: Any) -> bool:
    """Whether the caller of a layer said so."""
    return _HARMLESS_FOR.get() is layer


def is_faster(queries: Tensor, values: Tensor) -> bool:
    """Whether to pool queries `B + (Tq, Dq)` and values `B + (Tk, Dv)` by `fused_pool`.

    The kernels are for queries and values of one size, and there must be a key.
    """
    sizes = queries.shape[-1], values.shape[-1]
    fits = len({*sizes}) == 1 and 0 not in (*sizes, values.shape[-2])
    return keras.backend.backend() in FASTER_ON and fits and not _is_transformed()


def _is_transformed() -> bool:
    """Whether a transform of `torch.func` is at work: those have no rule for a gradient of one's own."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    return not torch.compiler.is_compiling() and is_transformed()


def fused_pool(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    *,
    scale: float,
    causal: bool,
    zeros: bool,
) -> Tensor:
    """The mean of values `B + (Tk, Dv)` under a softmax of `scale q.k + bias` over the keys that take part.

    The softmax runs in float32 at least; the backends see to that.

    Args:
        queries: `B + (Tq, D)`, finite where they see no key.
        keys: `B + (Tk, D)`, finite where no query sees them.
        values: `B + (Tk, Dv)`, likewise.
        mask: Booleans of at least 2 axes that broadcast to `B + (Tq, Tk)`, or None.
        bias: Floats that broadcast to the same, or None.
        scale: Factor of the dot products.
        causal: Whether query `i` sees only keys `j <= i`; in the place of a mask.
        zeros: Whether a query that sees no key gives zeros, and any finite numbers otherwise.

    Returns:
        `B + (Tq, Dv)`.
    """
    *batch, num_queries, _ = ops.shape(queries)
    if mask is not None:
        sees_a_key = ops.any(mask, axis=-1, keepdims=True)
        seen = ops.logical_or(mask, ops.logical_not(sees_a_key))

    def summand(bias: Tensor | None) -> Tensor | None:
        # Not the operation's own `mask`: on torch its fill is of the size of large scores in float16.
        if mask is not None:
            bias = ops.where(mask, 0.0 if bias is None else bias, ops.where(seen, 0.0, -math.inf))
        return None if bias is None else _with_heads(ops.cast(bias, dtype_of(queries)), batch)

    def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        heads = (ops.swapaxes(_with_heads(tensor, batch), -3, -2) for tensor in (queries, keys, values))
        pooled = ops.dot_product_attention(*heads, bias=summand(bias), scale=scale, is_causal=causal)
        return ops.reshape(ops.swapaxes(pooled, -3, -2), (*batch, num_queries, ops.shape(values)[-1]))

    def attend_plainly(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        scores = dot_product_scores(queries, keys, scale)
        order = ops.tril(ops.ones(ops.shape(scores)[-2:], "bool")) if causal else mask
        return pool(scores, values, order, bias=bias)[0]

    read = (queries, keys, values) if bias is None else (queries, keys, values, bias)
    output = _differentiable_twice(attend, attend_plainly)(*read)
    return output if mask is None or not zeros else hide(output, ops.squeeze(sees_a_key, -1))


def hide_all_unseen(
    mask: Tensor | None, queries: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for queries that see no key, and for keys and values that no query sees."""
    if mask is None:
        return queries, keys, values
    return *hide_unseen(mask, queries, keys), hide(values, ops.any(mask, axis=-2))


def _with_heads(tensor: Tensor, batch: list[Any]) -> Tensor:
    """What broadcasts to `B + (M, N)`, with two axes for B: the last of B is that of heads."""
    while len(tensor.shape) < len(batch) + 2:
        tensor = ops.expand_dims(tensor, 0)
    if len(batch) == 1:
        return ops.expand_dims(tensor, 1)
    if len(batch) == 2:
        return tensor
    *_, heads, rows, columns = ops.shape(tensor)
    tensor = ops.broadcast_to(tensor, (*batch[:-1], heads, rows, columns))
    return ops.reshape(tensor, (math.prod(batch[:-1]), heads, rows, columns))


def _differentiable_twice(fused: Callable[..., Tensor], plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function whose gradient is that of `fused`; a gradient that must itself have one is that of `plain`.

    torch has no gradient for the gradients of its kernels.
    """
    if keras.backend.backend() != "torch":
        return fused
    import torch

    if torch.compiler.is_compiling() or not torch.is_grad_enabled():  # what is compiled has no second gradients
        return fused

    def function(*tensors: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor | None, ...]]]:
        needed = [index for index, tensor in enumerate(tensors) if tensor.requires_grad]
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
            output = fused(*leaves)

        def gradient(*received: Tensor, upstream: Tensor) -> tuple[Tensor | None, ...]:
            if torch.is_grad_enabled():
                of, by, again = plain(*received), list(received), {"create_graph": True}
            else:
                of, by, again = output, leaves, {"retain_graph": True}
            found = torch.autograd.grad(of, [by[index] for index in needed], upstream, **again)
            return tuple(found[needed.index(index)] if index in needed else None for index in range(len(by)))

        return output.detach(), gradient

    def differentiable(*tensors: Tensor) -> Tensor:
        if not any(tensor.requires_grad for tensor in tensors):
            return fused(*tensors)
        return ops.custom_gradient(function)(*tensors)

    return differentiable
