"""Attention weights as a page holds them: cut to what can be looked at, four decimals a weight, labels beside them."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._standalone.verify import Case
from .labels import Labels, caption_of, labels_along

MOST_POSITIONS = 128  # of queries, and of keys
MOST_HEADS = 16
MOST_NUMBERS = 300_000  # weights on a page, some of them three bytes as text
SCALE = 10_000  # a weight is held as so many ten-thousandths: what the page shows is what it holds
NOT_A_NUMBER, EXACT_ZERO = 65_534, 65_535  # in place of a number

Map = dict[str, Any]


def maps_of(
    cases: Iterable[Case], manifest: Mapping[str, Any], labels: Labels, examples: int = 4
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the attention maps of cases, and the names of those for which there was no room.

    Args:
        cases: Names, inputs and outputs.
        manifest: That of a bundle; outputs with `weights_of` are drawn.
        labels: What ids are called.
        examples: How many examples of a case are drawn at most; cases called "samples" have four times as many.
    """
    drawn, left_out, room = [], [], MOST_NUMBERS
    for case in cases:
        most = 4 * examples if case.name == "samples" else examples
        maps = [
            _map(spec, case, manifest, labels, most)
            for spec in manifest["outputs"]
            if "weights_of" in spec and case.outputs[spec["name"]].size
        ]
        numbers = sum(int(np.prod(each["shape"])) for each in maps)
        if not maps:
            continue
        if numbers > room:
            left_out.append(case.name)
            continue
        room -= numbers
        shown = max(each["shape"][0] for each in maps)
        captions = [caption_of(case, manifest, labels, example) for example in range(shown)]
        drawn.append({"name": case.name, "maps": maps, "captions": captions})
    return drawn, left_out


def _map(spec: Mapping[str, Any], case: Case, manifest: Mapping[str, Any], labels: Labels, most: int) -> Map:
    name, weights = spec["name"], case.outputs[spec["name"]]
    whole = _four_axes(weights).astype(np.float32)
    shown = whole[:most, :MOST_HEADS, :MOST_POSITIONS, :MOST_POSITIONS]
    queries, keys = shown.shape[-2:]
    axes = spec["shape"]
    return {
        "output": name,
        "layer": spec["weights_of"],
        "shape": list(shown.shape),
        "of": list(whole.shape),
        "weights": _packed(_codes(shown)),
        "entropy": _packed(row_entropy(whole[: len(shown), : shown.shape[1], :queries]).astype("<f4")),
        "queries": labels_along(axes[-2], case, manifest, labels, len(shown), queries) if len(axes) > 2 else None,
        "keys": labels_along(axes[-1], case, manifest, labels, len(shown), keys),
    }


def _four_axes(weights: np.ndarray) -> np.ndarray:
    """Return weights as (examples, heads, Tq, Tk); one row of keys is that of a single query."""
    if weights.ndim == 2:
        return weights[:, np.newaxis, np.newaxis]
    if weights.ndim == 3:
        return weights[:, np.newaxis]
    return weights.reshape(-1, *weights.shape[-3:])


def _codes(weights: np.ndarray) -> np.ndarray:
    finite = np.isfinite(weights)
    codes = np.round(np.clip(np.where(finite, weights, 0), 0, 6) * SCALE).astype("<u2")
    codes[~finite] = NOT_A_NUMBER
    codes[weights == 0] = EXACT_ZERO
    return codes


def row_entropy(weights: np.ndarray) -> np.ndarray:
    """Return the entropy of each row in nats, `(..., Tk)` to `(...)`; 0 for a row without keys."""
    exact = np.where(np.isfinite(weights), weights, 0).astype(np.float64)
    sums = exact.sum(-1, keepdims=True)
    shares = exact / np.where(sums > 0, sums, 1)
    entropy: np.ndarray = 0.0 - np.sum(shares * np.log(np.where(shares > 0, shares, 1)), axis=-1)
    return entropy


def _packed(array: np.ndarray) -> str:
    """Return the bytes of an array, compressed, as text; a browser has what it takes to unpack them."""
    return base64.b64encode(gzip.compress(array.tobytes(), 9, mtime=0)).decode("ascii")
