"""Pooling by scaled dot products in one operation of the backend, where that has a kernel that keeps no scores.

`keras.ops.dot_product_attention` promises nothing for queries without keys: they get keys here, and what it makes of
them is not read. All else that the layers promise of masks follows from a bias of minus infinity.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from .._keras.private import is_transformed
from .._maths.masks import hide
from .._maths.scores import dot_product_scores
from .._tensors import Pairs, Tensor, dtype_of
from .call import AttentionCall
from .composite import DOT_PRODUCT, Scoring, pool

# As benchmarks/training.py measures it. On TensorFlow and, on a CPU, on JAX it is the same operations again.
FASTER_ON = ("torch",)


def is_faster(scoring: Scoring, values: Tensor) -> bool:
    """Whether to pool values `B + (Tk, Dv)` under a softmax of such scores by `fused_pool`.

    The kernels are for queries and values of one size, and there must be a key.
    """
    if scoring.name != DOT_PRODUCT or keras.backend.backend() not in FASTER_ON:
        return False
    sizes = scoring.tensors["queries"].shape[-1], values.shape[-1]
    return len({*sizes}) == 1 and 0 not in (*sizes, values.shape[-2]) and not _is_transformed()


def _is_transformed() -> bool:
    """Whether a transform of `torch.func` is at work: those have no rule for a gradient of one's own."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    return not torch.compiler.is_compiling() and is_transformed()


def fused_pool(scoring: Scoring, call: AttentionCall, mask: Tensor | None, *, no_row_is_empty: bool) -> Tensor:
    """The mean of values `B + (Tk, Dv)` under a softmax of `scale q.k + bias` over the keys that take part.

    The softmax runs in float32 at least; the backends see to that.

    Args:
        scoring: Queries `B + (Tq, D)` and keys `B + (Tk, D)`, finite where they are masked, and the scale.
        call: With values `B + (Tk, Dv)`, and perhaps a bias that broadcasts to `B + (Tq, Tk)`.
        mask: All masks of the call: booleans of at least 2 axes that broadcast to `B + (Tq, Tk)`, or None.
        no_row_is_empty: Whether each query is known to see a key, and each key a query.

    Returns:
        `B + (Tq, Dv)`. A query that sees no key gives zeros, or any finite numbers where the call is clean.
    """
    queries, values, scale = scoring.tensors["queries"], call.values, scoring.options["scale"]
    causal = no_row_is_empty and call.pairs == Pairs(causal=True) and call.bias is None
    if causal:
        mask = None
    if mask is not None and not call.is_clean:
        values = hide(values, ops.any(mask, axis=-2))
    *batch, num_queries, _ = ops.shape(queries)
    if mask is not None:
        sees_a_key = ops.any(mask, axis=-1, keepdims=True)
        takes_part = ops.logical_or(mask, ops.logical_not(sees_a_key))

    def summand(bias: Tensor | None) -> Tensor | None:
        # Not the operation's own `mask`: on torch its fill is of the size of large scores in float16.
        if mask is not None:
            bias = ops.where(mask, 0.0 if bias is None else bias, ops.where(takes_part, 0.0, -math.inf))
        return None if bias is None else _with_heads(ops.cast(bias, dtype_of(queries)), batch)

    def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        heads = (ops.swapaxes(_with_heads(tensor, batch), -3, -2) for tensor in (queries, keys, values))
        pooled = ops.dot_product_attention(*heads, bias=summand(bias), scale=scale, is_causal=causal)
        return ops.reshape(ops.swapaxes(pooled, -3, -2), (*batch, num_queries, ops.shape(values)[-1]))

    def attend_plainly(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        scores = dot_product_scores(queries, keys, scale)
        order = ops.tril(ops.ones(ops.shape(scores)[-2:], "bool")) if causal else mask
        return pool(scores, values, order, bias=bias)[0]

    read = (queries, scoring.tensors["keys"], values, *([] if call.bias is None else [call.bias]))
    output = _differentiable_twice(attend, attend_plainly)(*read)
    return output if mask is None or call.is_clean else hide(output, ops.squeeze(sees_a_key, -1))


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
