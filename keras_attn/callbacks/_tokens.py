"""Tokens for the axes of attention weights, from the ids that a model is given."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

Vocabulary = Sequence[str] | Mapping[int, str]
Tokens = list[list[str]]  # of each example
LONGEST = 12


def check_labels(labels: Any, layers: Any) -> Mapping[str, Vocabulary]:
    """Returns vocabularies by the name of an input; `layers` may say in pairs which of them are on the axes of a layer.

    Raises:
        TypeError: If something is of another type.
        ValueError: If an axis is that of an input without a vocabulary.
    """
    labels = {} if labels is None else labels
    if not isinstance(labels, Mapping):
        raise TypeError(
            "`labels` must be a dict from the name of an input to its vocabulary. "
            f"Received: labels of type {type(labels).__name__}."
        )
    for name, vocabulary in labels.items():
        if isinstance(vocabulary, str) or not isinstance(vocabulary, Sequence | Mapping):
            raise TypeError(
                "`labels` must have for each input its tokens in the order of their ids, or a dict from id to token. "
                f"Received: {type(vocabulary).__name__} for input {name!r}."
            )
    for axes in layers.values() if isinstance(layers, Mapping) else ():
        if not isinstance(axes, list | tuple) or len(axes) != 2 or any(each not in labels for each in axes):
            raise ValueError(
                "`layers`, where it is a dict, must have pairs of inputs that `labels` has: (queries, keys). "
                f"Received: {axes!r}. In `labels` there are: {', '.join(map(repr, labels)) or 'none'}."
            )
    return labels


def tokens_of(inputs: Mapping[str, Any], labels: Mapping[str, Vocabulary]) -> dict[str, Tokens]:
    """The tokens of each input that has a vocabulary.

    Args:
        inputs: Arrays by name. A lone one is meant by any name.
        labels: Vocabularies by the name of an input.

    Raises:
        ValueError: If there is no such input, or it holds no ids.
    """
    return {name: _tokens(_ids(name, inputs), vocabulary) for name, vocabulary in labels.items()}


def axis_tokens(count: int, size: int, name: str | None, tokens: Mapping[str, Tokens]) -> Tokens | None:
    """The tokens of an axis of that size in each of so many examples.

    They are those of the input of that name, or where there is none of the only input that fits; else None.
    """
    fitting = [
        each for key, each in tokens.items() if name in (None, key) and len(each) == count and len(each[0]) == size
    ]
    return fitting[0] if len(fitting) == 1 else None


def _ids(name: str, inputs: Mapping[str, Any]) -> Any:
    if name not in inputs and len(inputs) != 1:
        raise ValueError(
            "`labels` must have names of inputs of the model for keys. "
            f"Received: {name!r}. There are: {', '.join(map(repr, inputs))}."
        )
    given = inputs[name] if name in inputs else next(iter(inputs.values()))
    ids = np.asarray(ops.convert_to_numpy(given))
    if ids.ndim != 2 or not np.isin(ids, np.round(ids)).all():
        raise ValueError(
            "`labels` must be for inputs of ids, whole numbers of shape (B, T). "
            f"Received: input {name!r} of shape {ids.shape} and dtype {ids.dtype}."
        )
    return ids.astype("int64")


def _tokens(ids: Any, vocabulary: Vocabulary) -> Tokens:
    known = vocabulary if isinstance(vocabulary, Mapping) else dict(enumerate(vocabulary))
    return [[_short(str(known.get(int(each), each))) for each in row] for row in ids]


def _short(token: str) -> str:
    token = "".join(each if each.isprintable() else repr(each)[1:-1] for each in token)
    return token if len(token) <= LONGEST else f"{token[: LONGEST - 1]}…"
