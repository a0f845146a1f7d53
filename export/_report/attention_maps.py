"""Attention weights of a report: truncated to a viewable size, rounded and compressed."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._format.manifest import Manifest
from .._format.names import Case
from .encoding import encode_gzip_base64
from .examples import Example, LabelledAxis

MAX_POSITIONS = 128  # limit of queries, and of keys; heatmaps.mjs has the same limits
MAX_HEADS = 16
# Largest number of weights of a page, about 2.5 bytes each. `max_positions` is halved until one example fits.
MAX_WEIGHTS = 300_000
# With a fixed number of decimals, tiny weights would be rounded to zero, and their keys would look masked.
SIGNIFICANT_DIGITS = 3

AttentionMap = dict[str, Any]


def build_attention_maps(case: Case, manifest: Manifest, examples: Sequence[Example]) -> list[list[AttentionMap]]:
    """Return a list for each of the first examples that fit on the page. It has one map for each output of weights."""
    specs = [spec for spec in manifest.outputs if spec.name in manifest.weights_of and len(spec.shape) > 1]
    weights = {spec.name: _add_missing_axes(case.outputs[spec.name]) for spec in specs if case.outputs[spec.name].size}
    if not weights:
        return []
    max_positions = MAX_POSITIONS
    while max_positions > 1 and _count_weights(weights.values(), max_positions) > MAX_WEIGHTS:
        max_positions //= 2
    num_examples = max(1, MAX_WEIGHTS // _count_weights(weights.values(), max_positions))
    shapes = {spec.name: spec.shape for spec in specs}
    return [
        [
            {
                "output": name,
                "layer": manifest.weights_of[name],
                **_encode_map(array[index], max_positions),
                "queries": _find_words(shapes[name][-2], example.labelled_axes) if len(shapes[name]) > 2 else None,
                "keys": _find_words(shapes[name][-1], example.labelled_axes),
            }
            for name, array in weights.items()
            if index < len(array)
        ]
        for index, example in enumerate(examples[:num_examples])
    ]


def _add_missing_axes(weights: np.ndarray) -> np.ndarray:
    """Reshape weights (B, ..., Tq, Tk) or (B, Tk) to (B, heads, Tq, Tk); a missing axis gets size 1."""
    queries = weights.shape[-2] if weights.ndim > 2 else 1
    return weights.reshape(len(weights), math.prod(weights.shape[1:-2]), queries, weights.shape[-1])


def _count_weights(weights: Any, max_positions: int) -> int:
    """Return the number of weights of one example in all outputs, truncated to `MAX_HEADS` and `max_positions`."""
    limits = MAX_HEADS, max_positions, max_positions
    return sum(math.prod(map(min, array.shape[1:], limits)) for array in weights)


def _encode_map(weights: np.ndarray, max_positions: int) -> AttentionMap:
    truncated = weights[:MAX_HEADS, :max_positions, :max_positions]
    rounded = [float(f"{weight:.{SIGNIFICANT_DIGITS}g}") or 0 for weight in truncated.ravel().tolist()]
    numbers = [weight if math.isfinite(weight) else None for weight in rounded]
    text = json.dumps(numbers, separators=(",", ":")).encode()
    return {"shape": list(truncated.shape), "of": list(weights.shape), "weights": encode_gzip_base64(text)}


def _find_words(axis: int | str, labelled_axes: Sequence[LabelledAxis]) -> list[str] | None:
    """Return the words of the positions along an axis of the weights, or None if they are unknown."""
    # A dynamic axis is identified by its name. A static axis has only a size: if two sequences have it, use neither.
    matching_words = [labelled_axis.words for labelled_axis in labelled_axes if labelled_axis.dim == axis]
    if not matching_words or (isinstance(axis, int) and len(matching_words) > 1):
        return None
    return matching_words[0][:MAX_POSITIONS]
