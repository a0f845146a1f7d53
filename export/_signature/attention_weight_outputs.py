"""Find the model outputs that are attention weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_attn import MaskedSoftmax

from .._array_comparison import alike
from .._format.names import Arrays
from .._private_api.keras_internals import numbers_of, through_calls
from .signature import Signature


class _Seen(NamedTuple):
    layer: str
    weights: np.ndarray


def attention_outputs(signature: Signature, inputs: Arrays) -> dict[str, str]:
    """Return the outputs that are the weights of an attention layer, each with the path of that layer.

    An output is one if it holds what a layer returned as weights, number for number, heads and batch as they are; the
    axis of a single query may be missing, as in a step of a decoder. What a model makes of weights, such as a mean over
    heads, is not.

    Args:
        signature: The model.
        inputs: A case in which axes have different sizes and the numbers vary.
    """
    if not signature.attention:
        return {}
    seen: list[_Seen] = []
    with through_calls(signature.attention, lambda layer, call: _watching(layer, call, seen)):
        given = signature.run(inputs)
    return {
        name: each.layer
        for name, array in given.items()
        for each in seen[::-1]
        if array.dtype.kind == "f" and any(alike(same, array) for same in _layouts(each))
    }


def _layouts(seen: _Seen) -> list[np.ndarray]:
    """Return weights as they are, and without the axis of a single query."""
    weights = seen.weights
    return [weights, *([weights[..., 0, :]] if weights.ndim > 2 and weights.shape[-2] == 1 else [])]


def _watching(layer: Any, call: Callable[..., Any], seen: list[_Seen]) -> Callable[..., Any]:
    @functools.wraps(call)
    def watching(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        weights = result if isinstance(layer, MaskedSoftmax) else None
        if isinstance(result, tuple | list) and len(result) == 2:
            weights = result[1]
        array = None if weights is None else numbers_of(weights)
        if array is not None and array.ndim >= 2 and array.dtype.kind == "f":
            seen.append(_Seen(layer.path, array))
        return result

    return watching
