"""Attention weights of a report: cut to a size that can be viewed, rounded and compressed."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._format.manifest import Manifest
from .._format.names import Case
from .encoding import gzip_base64
from .examples import Example, LabelledAxis

MAX_POSITIONS = 128  # of queries, and of keys; heatmaps.mjs has the same limits
MAX_HEADS = 16
MAX_WEIGHTS = 300_000  # weights in one page, about 2.5 bytes each
DIGITS = 3  # significant digits of a weight: a tiny weight stays different from an exact zero

Map = dict[str, Any]


def attention_maps(case: Case, manifest: Manifest, examples: Sequence[Example]) -> list[list[Map]]:
    """Return a map of each output of attention weights, for as many examples of a case as fit.

    Fewer positions are shown until one example has at most `MAX_WEIGHTS` weights. Examples label queries and keys.
    """
    specs = [spec for spec in manifest.outputs if spec.name in manifest.weights_of and len(spec.shape) > 1]
    weights = {spec.name: _with_heads(case.outputs[spec.name]) for spec in specs if case.outputs[spec.name].size}
    if not weights:
        return []
    positions = MAX_POSITIONS
    while positions > 1 and _size(weights.values(), positions) > MAX_WEIGHTS:
        positions //= 2
    count = max(1, MAX_WEIGHTS // _size(weights.values(), positions))
    axes = {spec.name: spec.shape for spec in specs}
    return [
        [
            {
                "output": name,
                "layer": manifest.weights_of[name],
                **_map(array[index], positions),
                "queries": _labels(axes[name][-2], example.labelled_axes) if len(axes[name]) > 2 else None,
                "keys": _labels(axes[name][-1], example.labelled_axes),
            }
            for name, array in weights.items()
            if index < len(array)
        ]
        for index, example in enumerate(examples[:count])
    ]


def _with_heads(weights: np.ndarray) -> np.ndarray:
    """Return weights of shape (B, heads, Tq, Tk); a missing axis of heads or queries has size 1."""
    queries = weights.shape[-2] if weights.ndim > 2 else 1
    return weights.reshape(len(weights), math.prod(weights.shape[1:-2]), queries, weights.shape[-1])


def _size(weights: Any, positions: int) -> int:
    """Return the number of weights that one example of all outputs has."""
    limits = MAX_HEADS, positions, positions
    return sum(math.prod(map(min, array.shape[1:], limits)) for array in weights)


def _map(weights: np.ndarray, positions: int) -> Map:
    cut = weights[:MAX_HEADS, :positions, :positions]
    rounded = [float(f"{weight:.{DIGITS}g}") or 0 for weight in cut.ravel().tolist()]
    numbers = [weight if math.isfinite(weight) else None for weight in rounded]
    text = json.dumps(numbers, separators=(",", ":")).encode()
    return {"shape": list(cut.shape), "of": list(weights.shape), "weights": gzip_base64(text)}


def _labels(axis: int | str, labelled_axes: Sequence[LabelledAxis]) -> list[str] | None:
    """Return the words along an axis of weights: those of the first sequence with this axis.

    A name is one axis; two axes may share a static size, so two sequences of one size label no axis.
    """
    words = [labelled.words for labelled in labelled_axes if labelled.axis == axis]
    if not words or (isinstance(axis, int) and len(words) > 1):
        return None
    return words[0][:MAX_POSITIONS]
