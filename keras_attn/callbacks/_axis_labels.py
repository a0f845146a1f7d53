"""Look up tokens for the axes of attention weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

Vocabulary = Sequence[str] | Mapping[int, str]
TokenRows = list[list[str]]  # tokens of one model input: a list for each example, with one token for each position
# `MAX_INCHES` of `_heatmap_grid.py` is the space for 46 labels. 48 labels have hardly less space and stay legible.
MAX_TOKENS, MAX_CHARACTERS = 48, 12


def look_up_tokens(model: Any, inputs: Any, vocabularies: Mapping[str, Vocabulary]) -> list[TokenRows]:
    """Return the tokens of each input (B, T) that has a vocabulary. An id without a token becomes decimal digits."""
    if not isinstance(inputs, Mapping):
        names = [x.name for x in keras.tree.flatten(getattr(model, "inputs", None) or [])]
        inputs = {names[i] if names else i: array for i, array in enumerate(keras.tree.flatten(inputs))}
    all_rows = []
    for name, vocabulary in vocabularies.items():
        array = next(iter(inputs.values())) if len(inputs) == 1 else inputs.get(name)
        if array is None or len(array.shape) != 2 or "int" not in str(array.dtype):
            shapes = {key: tuple(value.shape) for key, value in inputs.items()}
            raise ValueError(f"`labels` must name integer inputs (B, T). Received: {name!r}. The inputs are: {shapes}.")
        token_by_id = vocabulary if isinstance(vocabulary, Mapping) else dict(enumerate(vocabulary))
        ids = ops.convert_to_numpy(array).astype(int).tolist()
        # Escape dollars: matplotlib renders text between two dollars as a formula.
        all_rows.append([[str(token_by_id.get(i, i))[:MAX_CHARACTERS].replace("$", r"\$") for i in row] for row in ids])
    return all_rows


def find_axis_tokens(all_rows: list[TokenRows], num_examples: int, axis_size: int) -> TokenRows | None:
    """Return the rows of the only input (num_examples, axis_size); None without one, or if it exceeds `MAX_TOKENS`."""
    matches = [rows for rows in all_rows if len(rows) == num_examples and len(rows[0]) == axis_size]
    return matches[0] if len(matches) == 1 and axis_size <= MAX_TOKENS else None
