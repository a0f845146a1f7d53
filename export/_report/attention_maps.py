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

MAX_POSITIONS = 128  # of queries, and of keys; heatmaps.mjs has the same limits
MAX_HEADS = 16
# Weights of a page, about 2.5 bytes each. The number of positions is halved until one example fits.
MAX_WEIGHTS = 300_000
# Fixed decimals would round tiny weights to zero, which means a masked key.
SIGNIFICANT_DIGITS = 3

Map = dict[str, Any]


def build_attention_maps(case: Case, manifest: Manifest, examples: Sequence[Example]) -> list[list[Map]]:
    """Return maps of all outputs of attention weights, for each example of a case that fits on the page."""
    specs = [spec for spec in manifest.outputs if spec.name in manifest.weights_of and len(spec.shape) > 1]
    weights = {spec.name: _add_missing_axes(case.outputs[spec.name]) for spec in specs if case.outputs[spec.name].size}
    if not weights:
        return []
    positions = MAX_POSITIONS
    while positions > 1 and _count_weights(weights.values(), positions) > MAX_WEIGHTS:
        positions //= 2
    count = max(1, MAX_WEIGHTS // _count_weights(weights.values(), positions))
    axes = {spec.name: spec.shape for spec in specs}
    return [
        [
            {
                "output": name,
                "layer": manifest.weights_of[name],
                **_encode_map(array[index], positions),
                "queries": _find_labels(axes[name][-2], example.labelled_axes) if len(axes[name]) > 2 else None,
                "keys": _find_labels(axes[name][-1], example.labelled_axes),
            }
            for name, array in weights.items()
            if index < len(array)
        ]
        for index, example in enumerate(examples[:count])
    ]


def _add_missing_axes(weights: np.ndarray) -> np.ndarray:
    """Reshape weights (B, ..., Tq, Tk) or (B, Tk) to (B, heads, Tq, Tk); a missing axis gets size 1."""
    queries = weights.shape[-2] if weights.ndim > 2 else 1
    return weights.reshape(len(weights), math.prod(weights.shape[1:-2]), queries, weights.shape[-1])


def _count_weights(weights: Any, positions: int) -> int:
    """Return the number of weights of one example, summed over outputs, after truncation to `positions`."""
    limits = MAX_HEADS, positions, positions
    return sum(math.prod(map(min, array.shape[1:], limits)) for array in weights)


def _encode_map(weights: np.ndarray, positions: int) -> Map:
    truncated = weights[:MAX_HEADS, :positions, :positions]
    rounded = [float(f"{weight:.{SIGNIFICANT_DIGITS}g}") or 0 for weight in truncated.ravel().tolist()]
    numbers = [weight if math.isfinite(weight) else None for weight in rounded]
    text = json.dumps(numbers, separators=(",", ":")).encode()
    return {"shape": list(truncated.shape), "of": list(weights.shape), "weights": encode_gzip_base64(text)}


def _find_labels(axis: int | str, labelled_axes: Sequence[LabelledAxis]) -> list[str] | None:
    """Return the words of the first sequence with an axis of the weights; None without such a sequence."""
    # A name is one axis, but two axes may share a static size: then two sequences match, and neither is certain.
    words = [labelled.words for labelled in labelled_axes if labelled.dim == axis]
    if not words or (isinstance(axis, int) and len(words) > 1):
        return None
    return words[0][:MAX_POSITIONS]
