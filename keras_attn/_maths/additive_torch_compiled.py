"""Additive scores and gradients of one block as kernels compiled by torch on a GPU.

Operation by operation torch passes over the features of a block some twenty times. Each function here is one sum over
features, which a compiled kernel makes of queries and keys alone; there are two for the gradients, as a kernel sums
over either the keys or the queries. Where torch cannot compile, blocks are computed as on other devices.
"""

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import keras

from .._keras.private_api import in_functorch_transform, is_on_gpu
from .._types import Tensor

_uncompilable_dtypes: set[Any] = set()  # dtypes


def uses_compiled_kernels(tensor: Any) -> bool:
    """Whether a block of such tensors is computed here: not for a second gradient, which keeps features anyway."""
    if keras.backend.backend() != "torch" or not is_on_gpu(tensor) or tensor.dtype in _uncompilable_dtypes:
        return False
    import torch

    if torch.compiler.is_compiling():
        return True
    has_numbers = type(tensor) is torch.Tensor  # kernels crash on one that has none, such as torch's `FakeTensor`
    return has_numbers and not (torch.is_grad_enabled() or in_functorch_transform())


def block_scores(rows: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
    """Additive scores `B + (n, Tk)` of projected queries `B + (n, U)` and keys `B + (Tk, U)`, with `w_v` (U, 1)."""
    scores: Tensor = _run_compiled(_sum_scores, _flatten_batch(rows), _flatten_batch(keys), w_v[:, 0]).reshape(
        *rows.shape[:-1], keys.shape[-2]
    )
    return scores


def block_gradients(rows: Tensor, keys: Tensor, drows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by queries, keys and `w_v`, before the former two are multiplied by it.

    Of rows `B + (n, U)`, keys `B + (Tk, U)` and the gradient by the scores `B + (n, Tk)`, in the dtype of the sums,
    they are `B + (n, U)`, `B + (Tk, U)` and (1, U), in that dtype.
    """
    flattened = _flatten_batch(rows), _flatten_batch(keys), _flatten_batch(drows)
    dqueries, dw_v = _run_compiled(_sum_over_keys, *flattened)
    dkeys = _run_compiled(_sum_over_queries, *flattened)
    return dqueries.reshape(rows.shape), dkeys.reshape(keys.shape), dw_v.sum((0, 1)).unsqueeze(0)


def _flatten_batch(tensor: Any) -> Tensor:
    """With one batch axis, in order: each number of axes and order of numbers would be compiled anew."""
    return tensor.reshape(math.prod(tensor.shape[:-2]), *tensor.shape[-2:]).contiguous()


def _compute_features(rows: Any, keys: Any) -> Any:
    return (rows.unsqueeze(-2) + keys.unsqueeze(-3)).tanh()


def _sum_scores(rows: Any, keys: Any, w_v: Any) -> Any:
    return (_compute_features(rows, keys) * w_v).sum(-1)


def _sum_over_keys(rows: Any, keys: Any, drows: Any) -> tuple[Any, Any]:
    features, drows = _compute_features(rows, keys).to(drows.dtype), drows.unsqueeze(-1)
    return (drows * (1 - features * features)).sum(-2), (drows * features).sum(-2)


def _sum_over_queries(rows: Any, keys: Any, drows: Any) -> Any:
    features, drows = _compute_features(rows, keys).to(drows.dtype), drows.unsqueeze(-1)
    return (drows * (1 - features * features)).sum(-3)


def _run_compiled(function: Callable[..., Any], *tensors: Any) -> Any:
    import torch

    dtype = tensors[0].dtype
    if torch.compiler.is_compiling() or dtype in _uncompilable_dtypes:
        return function(*tensors)
    try:
        return _compile(function)(*(tensor.detach() for tensor in tensors))  # to trace one that is not, torch warns
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - without a C compiler, for one: torch has no one class of these
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

    # whole, or an error: beyond some variants torch would run the function as it is, and say so in a log
    compiled: Callable[..., Any] = torch.compile(function, dynamic=True, fullgraph=True)
    return compiled
