"""Attention weights as a page holds them: cut to what can be looked at, four decimals a weight, labels beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._standalone.verify import Case, Manifest, Spec
from .encoding import packed
from .labels import Labels, caption_of, labels_along

MOST_POSITIONS = 128  # of queries, and of keys
MOST_HEADS = 16
MOST_NUMBERS = 300_000  # weights on a page, some of them three bytes as text
SHARE = 2  # a case takes at most this part of the room that is left, so that others have some
SCALE = 10_000  # a weight is held as so many ten-thousandths: what the page shows is what it holds
LOWEST_CODE, NOT_A_NUMBER, EXACT_ZERO = 65_533, 65_534, 65_535  # the last two in place of a number
SAMPLES, YOURS = "samples", "your inputs"
FIRST = (SAMPLES, YOURS, "base")  # cases that are cut rather than left out

Map = dict[str, Any]
Limits = tuple[int, int, int]  # of examples, heads and positions


def maps_of(
    cases: Iterable[Case], manifest: Manifest, labels: Labels, examples: int = 4
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the attention maps of cases, and the names of those for which there was no room.

    Args:
        cases: Names, inputs and outputs.
        manifest: That of a bundle; outputs of which it says whose weights they are, are drawn.
        labels: What ids are called.
        examples: How many examples of a case are drawn at most; samples have four times as many.
    """
    drawn, left_out, room = [], [], MOST_NUMBERS
    specs = [spec for spec in manifest.outputs if spec.name in manifest.weights_of and len(spec.shape) > 1]
    for case in cases:
        shown = [spec for spec in specs if case.outputs[spec.name].size]
        if not shown:
            continue
        limits: Limits | None = (4 * examples if case.name == SAMPLES else examples, MOST_HEADS, MOST_POSITIONS)
        while limits and sum(_numbers(case.outputs[spec.name], limits) for spec in shown) > room // SHARE:
            limits = _halved(limits) if case.name in FIRST else None
        if limits is None:
            left_out.append(case.name)
            continue
        maps = [_map(spec, case, manifest, labels, limits) for spec in shown]
        room -= sum(math.prod(each["shape"]) for each in maps)
        count = max(each["shape"][0] for each in maps)
        captions = [caption_of(case, manifest, labels, example) for example in range(count)]
        drawn.append({"name": case.name, "maps": maps, "captions": captions})
    return drawn, left_out


def _numbers(weights: np.ndarray, limits: Limits) -> int:
    examples, heads, positions = limits
    whole = _four_axes(weights).shape
    return math.prod(map(min, whole, (examples, heads, positions, positions)))


def _halved(limits: Limits) -> Limits | None:
    """Return smaller limits: of examples first, then of heads down to 8, of positions down to 32, and again of both.

    `None` where there is one of each.
    """
    examples, heads, positions = limits
    if examples > 1:
        return examples // 2, heads, positions
    if heads > 8 or (heads > 1 and positions <= 32):
        return 1, heads // 2, positions
    return (1, heads, positions // 2) if positions > 1 else None


def _map(spec: Spec, case: Case, manifest: Manifest, labels: Labels, limits: Limits) -> Map:
    name, weights = spec.name, case.outputs[spec.name]
    most, heads, positions = limits
    whole = _four_axes(weights).astype(np.float32)
    shown = whole[:most, :heads, :positions, :positions]
    queries, keys = shown.shape[-2:]
    entropy = row_entropy(whole[: len(shown), : shown.shape[1], :queries])
    axes = spec.shape
    plain = weights.ndim <= 4  # else several maps belong to one example
    return {
        "output": name,
        "layer": manifest.weights_of[name],
        "shape": list(shown.shape),
        "of": list(whole.shape),
        "scale": (scale := _scale(shown)),
        "weights": packed(_codes(shown, scale).tobytes()),
        "entropy": packed(entropy.astype("<f4").tobytes()),
        "queries": labels_along(axes[-2], case, manifest, labels, len(shown), queries)
        if plain and len(axes) > 2
        else None,
        "keys": labels_along(axes[-1], case, manifest, labels, len(shown), keys) if plain else None,
    }


def _four_axes(weights: np.ndarray) -> np.ndarray:
    """Return weights as (examples, heads, Tq, Tk); one row of keys is that of a single query."""
    if weights.ndim == 2:
        return weights[:, np.newaxis, np.newaxis]
    if weights.ndim == 3:
        return weights[:, np.newaxis]
    return weights.reshape(-1, *weights.shape[-3:])


def _scale(weights: np.ndarray) -> int:
    """Return in what parts of 1 weights are held: ten-thousandths, or coarser where they are larger than 6."""
    largest = float(np.max(np.abs(weights), initial=0.0, where=np.isfinite(weights)))
    return SCALE if largest * SCALE < LOWEST_CODE else max(1, int(LOWEST_CODE / largest))


def _codes(weights: np.ndarray, scale: int) -> np.ndarray:
    """Return weights as whole parts; a layer of a user's own may give negative ones, which are held as 0."""
    finite = np.isfinite(weights)
    codes: np.ndarray = np.round(np.clip(np.where(finite, weights, 0) * scale, 0, LOWEST_CODE)).astype("<u2")
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
