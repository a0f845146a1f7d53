"""Additive scores and gradients of one block as kernels compiled by torch on a GPU.

Operation by operation, torch passes over the features of a block some twenty times. A compiled kernel computes a sum
over features without storing them. The gradients need two kernels, as a kernel sums over either keys or queries. If
torch cannot compile, blocks are computed as on a CPU. Axes: n queries of a block; N, all batch axes joined.
"""

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import keras

from .._keras.private_api import in_functorch_transform, is_on_gpu
from .._types import Tensor

_uncompilable_dtypes: set[Any] = set()


def uses_compiled_kernels(tensor: Any) -> bool:
    """Return True if kernels compute a block of queries with the device and dtype of `tensor`."""
    if keras.backend.backend() != "torch" or not is_on_gpu(tensor) or tensor.dtype in _uncompilable_dtypes:
        return False
    import torch

    if torch.compiler.is_compiling():
        return True
    # Kernels crash on tensors without data, such as `FakeTensor`. Second-order gradients store features anyway.
    has_data = type(tensor) is torch.Tensor
    return has_data and not (torch.is_grad_enabled() or in_functorch_transform())


def block_scores(rows: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
    """Return scores `B + (n, Tk)` of projected queries `B + (n, U)`, keys `B + (Tk, U)` and `w_v` (U, 1)."""
    scores: Tensor = _run_compiled(_sum_scores, _flatten_batch(rows), _flatten_batch(keys), w_v[:, 0])
    return scores.reshape(*rows.shape[:-1], keys.shape[-2])


def block_gradients(rows: Tensor, keys: Tensor, drows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `sum_j d`, `sum_i d` and the gradient of `w_v`, as in the module docstring of `additive_query_blocks`.

    Rows are `B + (n, U)`, keys `B + (Tk, U)`, and the gradient by the scores `drows` is `B + (n, Tk)`. The results
    `B + (n, U)`, `B + (Tk, U)` and (1, U) have the dtype of `drows`.
    """
    flattened = _flatten_batch(rows), _flatten_batch(keys), _flatten_batch(drows)
    dqueries, dw_v = _run_compiled(_sum_over_keys, *flattened)
    dkeys = _run_compiled(_sum_over_queries, *flattened)
    return dqueries.reshape(rows.shape), dkeys.reshape(keys.shape), dw_v.sum((0, 1)).unsqueeze(0)


def _flatten_batch(tensor: Any) -> Tensor:
    """Join all batch axes: `B + (T, D)` to (N, T, D), contiguous."""
    # Every rank and every memory layout would compile another kernel.
    return tensor.reshape(math.prod(tensor.shape[:-2]), *tensor.shape[-2:]).contiguous()


def _compute_features(rows: Any, keys: Any) -> Any:
    """Return features (N, n, Tk, U) of queries (N, n, U) and keys (N, Tk, U)."""
    return (rows.unsqueeze(-2) + keys.unsqueeze(-3)).tanh()


def _sum_scores(rows: Any, keys: Any, w_v: Any) -> Any:
    """Return scores (N, n, Tk) of queries (N, n, U), keys (N, Tk, U) and `w_v` (U,)."""
    return (_compute_features(rows, keys) * w_v).sum(-1)


def _sum_over_keys(rows: Any, keys: Any, drows: Any) -> tuple[Any, Any]:
    """Return the sums over keys of `d` and of `g t`, both (N, n, U); `drows` is (N, n, Tk)."""
    features, drows = _compute_features(rows, keys).to(drows.dtype), drows.unsqueeze(-1)
    return (drows * (1 - features * features)).sum(-2), (drows * features).sum(-2)


def _sum_over_queries(rows: Any, keys: Any, drows: Any) -> Any:
    """Return the sum over queries of `d`, (N, Tk, U); `drows` is (N, n, Tk)."""
    features, drows = _compute_features(rows, keys).to(drows.dtype), drows.unsqueeze(-1)
    return (drows * (1 - features * features)).sum(-3)


def _run_compiled(function: Callable[..., Any], *tensors: Any) -> Any:
    """Run a function of tensors as a compiled kernel, or as it is if torch cannot compile it for their dtype."""
    import torch

    dtype = tensors[0].dtype
    if torch.compiler.is_compiling() or dtype in _uncompilable_dtypes:
        return function(*tensors)
    try:
        # torch warns if it traces tensors that are not detached.
        return _compile(function)(*(tensor.detach() for tensor in tensors))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - torch has no common class for a missing C compiler, for example
        _uncompilable_dtypes.add(dtype)
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        warnings.warn(
            f"torch could not compile additive scores of {dtype}, so they take several times as long on this GPU: "
            f"{reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return function(*tensors)


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    # Without fullgraph torch logs a message after some variants and runs the function without compiling it.
    compiled: Callable[..., Any] = torch.compile(function, dynamic=True, fullgraph=True)
    return compiled
