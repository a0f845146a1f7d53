"""All that is used of Keras without being public there, in one place."""

from typing import Any

from keras.src.backend import get_keras_mask, in_symbolic_scope, set_keras_mask
from keras.src.backend import get_stateless_scope as stateless_scope
from keras.src.backend import rnn as loop_over_time

__all__ = [
    "calls_of",
    "children_of",
    "get_keras_mask",
    "in_symbolic_scope",
    "loop_over_time",
    "set_keras_mask",
    "stateless_scope",
    "sublayers_of",
]


def sublayers_of(layer: Any) -> list[Any]:
    """All layers within a layer, at any depth."""
    return list(layer._flatten_layers(include_self=False))


def children_of(layer: Any) -> list[Any]:
    """The layers that a layer holds itself."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def calls_of(layer: Any) -> list[Any]:
    """The calls of a layer in functional models, as nodes."""
    return list(layer._inbound_nodes)
