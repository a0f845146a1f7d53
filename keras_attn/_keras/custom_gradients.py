"""Custom gradients on every backend; on torch exceptions propagate."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import keras


def attach_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors whose gradient it gives itself, as `keras.ops.custom_gradient` takes it.

    On torch what goes wrong in it goes on, Ctrl-C too. Keras calls it once more there whatever happened, and takes its
    output and gradient together for the output (Keras 3.15.1; keras pull request 19302).
    """
    if keras.backend.backend() != "torch":
        wrapped: Callable[..., Any] = keras.ops.custom_gradient(function)
        return wrapped
    return partial(_torch_gradient_function().apply, function)


@cache
def _torch_gradient_function() -> Any:
    import torch

    class WithGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, function: Callable[..., Any], *tensors: Any) -> Any:
            ctx.save_for_backward(*tensors)
            output, ctx.gradient = function(*tensors)
            return output

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> tuple[Any, ...]:
            return None, *ctx.gradient(*ctx.saved_tensors, upstream=upstream)

    return WithGradient
