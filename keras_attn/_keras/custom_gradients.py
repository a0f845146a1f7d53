"""Custom gradients on every backend; on torch exceptions propagate."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import keras


def attach_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of tensors that returns (output, gradient function), like `keras.ops.custom_gradient`."""
    # On torch, Keras 3.15.1 catches every exception of the function, KeyboardInterrupt included, calls the function
    # again and returns the pair as if it were the output (keras pull request 19302).
    if keras.backend.backend() != "torch":
        wrapped: Callable[..., Any] = keras.ops.custom_gradient(function)
        return wrapped
    return partial(_torch_gradient_function().apply, function)


@cache
def _torch_gradient_function() -> Any:
    """Return a `torch.autograd.Function` class whose first argument is the wrapped function."""
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
