"""What a model is called with again and again, and the tokens of its ids for the axes of attention weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

Vocabulary = Sequence[str] | Mapping[int, str]
Tokens = list[list[str]]  # of each example
LONGEST = 12


def check_inputs(inputs: Any) -> Any:
    """Returns inputs whose leaves are arrays with as many examples each, at least one; None stays None.

    Raises:
        TypeError: If a leaf is no array.
        ValueError: If the number of examples differs, or is zero.
    """
    leaves = [leaf for leaf in keras.tree.flatten(inputs) if leaf is not None]
    for leaf in leaves:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "__getitem__"):
            raise TypeError(
                "`inputs` must be an array, or a list, tuple or dict of arrays. "
                f"Received: {type(leaf).__name__} in it. Make an array of numbers with `numpy.asarray`."
            )
    counts = [leaf.shape[0] if len(leaf.shape) else 0 for leaf in leaves]
    if len(set(counts)) != 1 or not counts[0]:
        raise ValueError(
            "`inputs` must have one or more examples on the first axis of each array, as many in all of them. "
            f"Received: shapes {', '.join(str(tuple(leaf.shape)) for leaf in leaves) or 'of no array'}."
        )
    return inputs


def first_examples(model: Any, inputs: Any, count: int) -> Any:
    """The first examples; all of them where the model takes no other number."""
    if any(tensor.shape[0] is not None for tensor in _inputs_of(model)):
        return inputs
    return keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[:count], inputs)


def named_inputs(model: Any, inputs: Any) -> dict[str, Any]:
    """The arrays by name: the key of a dict, the name of a `keras.Input`, or else the number."""
    if isinstance(inputs, Mapping):
        return {str(key): value for key, value in inputs.items()}
    leaves, declared = keras.tree.flatten(inputs), _inputs_of(model)
    if len(leaves) == len(declared):
        return {tensor.name: leaf for tensor, leaf in zip(declared, leaves, strict=True)}
    return {str(number): leaf for number, leaf in enumerate(leaves)}


def _inputs_of(model: Any) -> list[Any]:
    """What a functional or sequential model declares; nothing for a subclassed one."""
    return list(keras.tree.flatten(getattr(model, "inputs", None) or []))


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
