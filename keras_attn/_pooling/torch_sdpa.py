"""Dot-product pooling by torch's fused `scaled_dot_product_attention`.

It is written in torch itself: each operation of Keras takes some 15 us of Python more, and a step of a small layer is
made of these. The operation promises nothing for queries without keys: they get keys here, and what it makes of them is
not read. On TensorFlow, and on a CPU on JAX, what Keras has for it is the same operations as those of `pool` again.
"""

import math
from collections.abc import Callable
from typing import Any

import keras

from .._keras.custom_gradients import with_gradient
from .._keras.private_api import is_transformed
from .._maths.scores import dot_product_scores
from .._types import Tensor
from .attention_call import AttentionCall
from .pool import pool
from .scoring import DOT_PRODUCT, Scoring


def is_faster(scoring: Scoring, values: Tensor) -> bool:
    """Whether to pool values `B + (Tk, Dv)` under a softmax of such scores by `fused_pool`.

    The kernels are for queries and values of one size, and there must be a key. A transform of `torch.func` has no rule
    for a gradient of one's own.
    """
    if scoring.name != DOT_PRODUCT or keras.backend.backend() != "torch":
        return False
    import torch

    sizes = scoring.tensors["queries"].shape[-1], values.shape[-1]
    if len({*sizes}) > 1 or 0 in (*sizes, values.shape[-2]):
        return False
    return torch.compiler.is_compiling() or not is_transformed()


def fused_pool(scoring: Scoring, call: AttentionCall, mask: Tensor | None, *, causal: bool) -> Tensor:
    """The mean of values `B + (Tk, Dv)` under a softmax of `scale q.k + bias` over the keys that take part.

    The softmax runs in float32 at least; the kernels see to that.

    Args:
        scoring: Queries `B + (Tq, D)` and keys `B + (Tk, D)`, finite where they are masked, and the scale.
        call: With values `B + (Tk, Dv)`, and perhaps a bias that broadcasts to `B + (Tq, Tk)`.
        mask: All masks of the call: booleans of at least 2 axes that broadcast to `B + (Tq, Tk)`, or None.
        causal: Whether a query sees the keys up to its own position, and nothing else is known of masks and biases.

    Returns:
        `B + (Tq, Dv)`. A query that sees no key gives zeros, or any finite numbers where the call is clean.
    """
    import torch

    # as every operation of Keras does: to the device that Keras is on
    taken = (scoring.tensors["queries"], scoring.tensors["keys"], call.values)
    queries, keys, values = (keras.ops.convert_to_tensor(tensor) for tensor in taken)
    bias, mask = (None if each is None else keras.ops.convert_to_tensor(each) for each in (call.bias, mask))
    scale, shape = scoring.options["scale"], queries.shape
    if mask is not None:
        sees_a_key = mask.any(-1, keepdim=True)
        takes_part = mask | ~sees_a_key
        if not call.is_clean:
            values = torch.where(mask.any(-2).unsqueeze(-1), values, 0.0)

    def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        if mask is not None and bias is None:
            bias = takes_part
        elif bias is not None:
            hidden = bias if mask is None else torch.where(mask, bias, torch.where(takes_part, 0.0, -math.inf))
            bias = hidden.to(queries.dtype)
        if bias is not None:  # the kernels of CUDA want its last axis whole
            bias = _with_heads(bias.expand(*bias.shape[:-1], keys.shape[-2]).contiguous(), shape[:-2])
        pooled = torch.nn.functional.scaled_dot_product_attention(
            *(_with_heads(tensor, shape[:-2]) for tensor in (queries, keys, values)),
            attn_mask=bias,
            is_causal=causal,
            scale=scale,
        )
        return pooled.reshape(shape)

    def attend_plainly(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        scores = dot_product_scores(queries, keys, scale)
        order = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril() if causal else mask
        return pool(scores, values, order, bias=bias)[0]

    read = (queries, keys, values, *([] if bias is None else [bias]))
    output = _differentiable_twice(attend, attend_plainly)(*read)
    return output if mask is None or call.is_clean else torch.where(sees_a_key, output, 0.0)


def _with_heads(tensor: Any, batch: tuple[int, ...]) -> Tensor:
    """What broadcasts to `B + (M, N)`, with two axes for B: the last of B is that of heads."""
    if len(batch) == 2 and tensor.ndim == 4:
        return tensor
    tensor = tensor.reshape((1,) * (len(batch) + 2 - tensor.ndim) + tuple(tensor.shape))
    if len(batch) == 1:
        return tensor.unsqueeze(1)
    if len(batch) == 2:
        return tensor
    return tensor.expand(*batch[:-1], *tensor.shape[-3:]).reshape(math.prod(batch[:-1]), *tensor.shape[-3:])


def _differentiable_twice(fused: Callable[..., Tensor], plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function whose gradient is that of `fused`; a gradient that must itself have one is that of `plain`.

    torch has no gradient for the gradients of its kernels.
    """
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
        return with_gradient(function)(*tensors)

    return differentiable
