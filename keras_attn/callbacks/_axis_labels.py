"""Look up tokens for the axes of attention weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

Vocabulary = Sequence[str] | Mapping[int, str]
Tokens = list[list[str]]  # one list per example
# Legible on the axis of a map: 48 tokens of `_heatmap_grid.INCHES_PER_TOKEN` just exceed `_heatmap_grid.MAX_INCHES`.
MAX_TOKENS, MAX_CHARACTERS = 48, 12


def look_up_tokens(model: Any, inputs: Any, labels: Mapping[str, Vocabulary]) -> list[Tokens]:
    """Return the tokens of each input (B, T) that has a vocabulary. An id without a token becomes its number."""
    if not isinstance(inputs, Mapping):
        declared = keras.tree.flatten(getattr(model, "inputs", None) or [])
        inputs = {declared[i].name if declared else i: array for i, array in enumerate(keras.tree.flatten(inputs))}
    tokens = []
    for name, vocabulary in labels.items():
        array = next(iter(inputs.values())) if len(inputs) == 1 else inputs.get(name)
        if array is None or len(array.shape) != 2 or "int" not in str(array.dtype):
            shapes = {key: tuple(value.shape) for key, value in inputs.items()}
            raise ValueError(f"`labels` must name integer inputs (B, T). Received: {name!r}. The inputs are: {shapes}.")
        token_by_id = vocabulary if isinstance(vocabulary, Mapping) else dict(enumerate(vocabulary))
        ids = ops.convert_to_numpy(array).astype(int).tolist()
        # Escape dollars: matplotlib renders text between two dollars as a formula.
        tokens.append([[str(token_by_id.get(i, i))[:MAX_CHARACTERS].replace("$", r"\$") for i in row] for row in ids])
    return tokens


def find_axis_tokens(inputs: list[Tokens], num_examples: int, size: int) -> Tokens | None:
    """Return the tokens of the only input with `size` positions; None if several match or the axis is too long."""
    matches = [tokens for tokens in inputs if len(tokens) == num_examples and len(tokens[0]) == size]
    return matches[0] if len(matches) == 1 and size <= MAX_TOKENS else None
