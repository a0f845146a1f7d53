"""Golden cases long enough to use the large form of attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from keras_attn import AdditiveAttention, AttentionPooling

from .._format.names import Arrays
from .._private_api.builtin_attention import WITH_HEADS, WITHOUT_HEADS
from .._thresholds import LARGE
from .dynamic_axes import BATCH, Shapes
from .input_generators import Source
from .random_inputs import mask

LONG = "long"
EVERY_KEY = "long, every key"
NOT_RUN = "not run"
ROWS = 2
FEW_UNITS = 8
NUMBERS = 2**23  # an array of these cases holds at most
ATTENTION = (AttentionPooling, *WITH_HEADS, *WITHOUT_HEADS)
ADDITIVE = (AdditiveAttention, keras.layers.AdditiveAttention)


def positions(layers: Iterable[Any]) -> list[int]:
    """Return from how many positions on some call of the layers may take the form for large sizes, the most first."""
    found: set[int] = set()
    for layer in layers:
        if isinstance(layer, ADDITIVE):
            found.add(LARGE["additive"].each(_units(layer)).positions())
        elif isinstance(layer, ATTENTION):
            found |= {least.positions() for kind, least in LARGE.items() if kind != "additive"}
    return sorted(found - {0}, reverse=True)


def _units(layer: Any) -> int:
    """Return the units of additive scores, or few where the layer does not tell: then more positions do."""
    if isinstance(layer, AdditiveAttention):
        return int(layer.num_hiddens)
    scale = getattr(layer, "scale", None)  # a layer that is never called has none
    return FEW_UNITS if scale is None else int(scale.shape[0])


def long_sizes(length: int, shapes: Shapes, sizes: Mapping[str, int], step: Mapping[str, int]) -> dict[str, int] | None:
    """Return sizes by name at which sequences have so many positions.

    Args:
        length: How many, at least.
        shapes: Shape of every input; a string names a dynamic axis.
        sizes: Sizes by name on which the model runs.
        step: What a size must be a multiple of, by name, where that is not 1.

    Returns:
        The sizes, or None where no input is a sequence: has one dynamic axis beside the batch. An image of that size
        would be too large.
    """
    alone = [[size for size in shape if isinstance(size, str) and size != BATCH] for shape in shapes.values()]
    sequences = {symbol for symbols in alone if len(symbols) == 1 for symbol in symbols}
    if not sequences:
        return None
    longer = {symbol: -(-length // step.get(symbol, 1)) * step.get(symbol, 1) for symbol in sequences}
    longer = {symbol: max(size, sizes[symbol]) for symbol, size in longer.items()}
    return {**sizes, **longer, **({BATCH: ROWS} if BATCH in sizes else {})}


def with_every_key(made: Mapping[str, Source], inputs: Arrays) -> Arrays | None:
    """Return inputs whose lengths are full without padding or masks, if a length, an id or a mask may keep keys out."""
    changed = dict(inputs)
    for name, source in made.items():
        if source.draw is mask or inputs[name].dtype == bool:
            changed[name] = np.ones_like(inputs[name])
        elif source.padding is not None and source.ids is not None:
            other = next((id_ for id_ in source.ids.dealt if id_ != source.padding), source.padding)
            changed[name] = np.where(inputs[name] == source.padding, other, inputs[name]).astype(inputs[name].dtype)
    has_lengths = any(source.lengths for source in made.values())
    return changed if has_lengths or any(changed[name] is not inputs[name] for name in inputs) else None
