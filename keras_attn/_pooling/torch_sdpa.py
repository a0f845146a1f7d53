"""Dot-product pooling by torch's fused `scaled_dot_product_attention`.

This module calls torch directly, since an operation of Keras takes some 15 us more, noticeable for a small layer.
TensorFlow has no fused kernel, and JAX none for a CPU; there Keras's operation runs the operations of `pool`.

torch does not define the result of fully masked queries. They get all keys here, and zeros replace their outputs.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import keras

from .._keras.private_api import in_functorch_transform
from .._maths.scores import dot_product_scores
from .._types import Tensor
from .attention_call import AttentionCall
from .pool import pool
from .scoring import DOT_PRODUCT, Scoring


def can_use_sdpa(scoring: Scoring, values: Tensor) -> bool:
    """Return True if `sdpa_pool` supports a scoring function and values `B + (Tk, Dv)`."""
    if scoring.name != DOT_PRODUCT or keras.backend.backend() != "torch":
        return False
    import torch

    # The kernels need D = Dv and at least one key.
    sizes = scoring.tensors["queries"].shape[-1], values.shape[-1]
    if len({*sizes}) > 1 or 0 in (*sizes, values.shape[-2]):
        return False
    # Transforms of `torch.func` do not support the custom gradient.
    return torch.compiler.is_compiling() or not in_functorch_transform()


def sdpa_pool(scoring: Scoring, call: AttentionCall, mask: Tensor | None, *, causal: bool) -> Tensor:
    """Return `softmax(scale q.k + bias) values` over unmasked keys, with a softmax in float32 at least.

    Args:
        scoring: Queries `B + (Tq, D)` and keys `B + (Tk, D)`, finite also if masked, and the scale.
        call: Record with values `B + (Tk, Dv)`, and a bias that broadcasts to `B + (Tq, Tk)`, or None.
        mask: Merged mask of the call: booleans of at least 2 axes that broadcast to `B + (Tq, Tk)`, or None.
        causal: True for a causal mask, with neither a mask nor a bias.

    Returns:
        `B + (Tq, Dv)`: zeros for fully masked queries, or arbitrary finite values if the call skips zeroing.
    """
    import torch

    # Move tensors to the device of Keras, as operations of Keras do.
    sources = (scoring.tensors["queries"], scoring.tensors["keys"], call.values, call.bias)
    tensors = [keras.ops.convert_to_tensor(tensor) for tensor in sources if tensor is not None]
    mask = None if mask is None else keras.ops.convert_to_tensor(mask)
    has_key = None if mask is None else mask.any(-1, keepdim=True)
    if mask is not None and not call.skip_zeroing:
        tensors[2] = torch.where(mask.any(-2).unsqueeze(-1), tensors[2], 0.0)
    pooling = _SdpaPooling(scoring.options["scale"], causal, mask, has_key)
    # Compiled code supports no second-order gradients.
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        output = pooling.pool_fused(*tensors)
    else:
        output = _pooling_function().apply(pooling, *tensors)
    return output if has_key is None or call.skip_zeroing else torch.where(has_key, output, 0.0)


class _SdpaPooling(NamedTuple):
    """Options of pooling queries `B + (Tq, D)`, keys `B + (Tk, D)` and values `B + (Tk, D)`."""

    scale: float
    causal: bool
    mask: Tensor | None  # booleans that broadcast to `B + (Tq, Tk)`
    has_key: Any  # booleans that broadcast to `B + (Tq, 1)`; None without a mask

    def pool_fused(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the output `B + (Tq, D)` of torch's fused operation."""
        import torch

        batch, mask = queries.shape[:-2], self._merge_mask_and_bias(queries.dtype, bias)
        if mask is not None:
            # CUDA kernels refuse a mask with a broadcast key axis.
            mask = _reshape_to_four_axes(mask.expand(*mask.shape[:-1], keys.shape[-2]).contiguous(), batch)
        pooled = torch.nn.functional.scaled_dot_product_attention(
            *(_reshape_to_four_axes(tensor, batch) for tensor in (queries, keys, values)),
            attn_mask=mask,
            is_causal=self.causal,
            scale=self.scale,
        )
        return pooled.reshape(queries.shape)

    def _merge_mask_and_bias(self, dtype: Any, bias: Tensor | None) -> Tensor | None:
        """Return booleans, or a bias of minus infinity for masked keys; fully masked queries get all keys."""
        import torch

        if self.mask is None:
            return None if bias is None else bias.to(dtype)
        is_unmasked = self.mask | ~self.has_key
        if bias is None:
            return is_unmasked
        return torch.where(self.mask, bias, torch.where(is_unmasked, 0.0, -math.inf)).to(dtype)

    def pool_plain(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the output `B + (Tq, D)` of plain operations, which have second-order gradients."""
        import torch

        scores, mask = dot_product_scores(queries, keys, self.scale), self.mask
        if self.causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        return pool(scores, values, mask, bias=bias)[0]


def _reshape_to_four_axes(tensor: Any, batch: tuple[int, ...]) -> Tensor:
    """Reshape a tensor that broadcasts to `B + (M, N)` to rank 4: (batch, heads, M, N), as the kernels need."""
    if len(batch) == 2 and tensor.ndim == 4:
        return tensor
    tensor = tensor.reshape((1,) * (len(batch) + 2 - tensor.ndim) + tuple(tensor.shape))
    if len(batch) == 1:
        return tensor.unsqueeze(1)
    if len(batch) == 2:
        return tensor
    return tensor.expand(*batch[:-1], *tensor.shape[-3:]).reshape(math.prod(batch[:-1]), *tensor.shape[-3:])


@cache
def _pooling_function() -> Any:
    """Return a `torch.autograd.Function` class that runs a `_SdpaPooling` and supports second-order gradients."""
    import torch

    # The kernels have no second-order gradients; the operations of `pool_plain` have.

    class Pool(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, pooling: _SdpaPooling, *tensors: Tensor) -> Tensor:
            ctx.pooling = pooling
            ctx.save_for_backward(*tensors)
            with torch.enable_grad():
                ctx.leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
                ctx.output = pooling.pool_fused(*ctx.leaves)
            return ctx.output.detach()

        @staticmethod
        def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
            is_second_order = torch.is_grad_enabled()
            tensors = ctx.saved_tensors if is_second_order else ctx.leaves
            output = ctx.pooling.pool_plain(*tensors) if is_second_order else ctx.output
            needs_gradient = ctx.needs_input_grad[1:]
            sources = [tensor for tensor, is_needed in zip(tensors, needs_gradient, strict=True) if is_needed]
            gradients = iter(
                torch.autograd.grad(output, sources, upstream, retain_graph=True, create_graph=is_second_order)
            )
            return None, *(next(gradients) if is_needed else None for is_needed in needs_gradient)

    return Pool
