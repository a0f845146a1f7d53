"""Examples that a model is called with again and again: an array, or lists, tuples and dicts of arrays."""

from collections.abc import Mapping
from typing import Any

import keras


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
