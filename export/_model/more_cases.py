"""Golden cases for what small sizes do not show: every row of a vocabulary, padding elsewhere, long inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_attn import AdditiveAttention, AttentionPooling

from .._standalone.verify import Arrays, Case
from .._thresholds import LARGE
from .draws import every, filled, mask, padded_elsewhere
from .dynamic_axes import BATCH, Shapes
from .input_sources import Source

EVERY_ID = "every id"
MANY_ROWS = "many rows"
PADDED_ELSEWHERE = "padding elsewhere"
LONG = "long"
LONG_ROWS = 2
ROWS = 4096  # of the largest vocabulary of which every row is looked up
CHOICES = 4096  # integers or booleans in the case of many rows
BETWEEN = 2**24  # numbers between input and output, roughly
NUMBERS = 2**21  # an array of these cases holds at most
LONG_NUMBERS = 2**24  # likewise, of the long case
ATTENTION = (
    AttentionPooling,
    keras.layers.MultiHeadAttention,
    keras.layers.GroupQueryAttention,
    keras.layers.Attention,
)
ADDITIVE = (AdditiveAttention, keras.layers.AdditiveAttention)


def with_padding_elsewhere(made: Mapping[str, Source], inputs: Arrays) -> Arrays | None:
    """Return inputs whose padding stands at the start or in between, if they are padded."""
    rng = np.random.default_rng(0)
    padded = {name for name, source in made.items() if source.padding is not None}
    moved = {name: padded_elsewhere(inputs[name], rng) for name in padded}
    return inputs | moved if any((moved[name] != inputs[name]).any() for name in padded) else None


def with_every_id(made: Mapping[str, Source], cases: Sequence[Case], draw: Callable[[int], Arrays]) -> Arrays | None:
    """Return inputs with every id that no case has so far, if there is one.

    Args:
        made: The source of each input.
        cases: The cases so far.
        draw: Draws inputs of so many rows, or of as many as there must be, that hide none by a length.
    """
    masks = [name for name, source in made.items() if source.draw is mask]
    # an id that stood where a mask or a length hides it has not been seen by anyone
    seen = [] if masks or any(source.lengths for source in made.values()) else [case.inputs for case in cases]
    left = {name: _left(name, source, seen) for name, source in made.items() if source.ids}
    left = {name: ids for name, ids in left.items() if ids.size}
    if not left:
        return None
    row = {name: math.prod(draw(1)[name].shape[1:]) for name in left}
    rows = max(math.ceil(ids.size / row[name]) for name, ids in left.items())
    largest = max(output.size for output in cases[0].outputs.values())
    for_each = max(row[name] * largest / cases[0].inputs[name].size for name in left)  # row, about
    inputs = draw(max(1, min(rows, int(NUMBERS / max(for_each, 1)))))
    inputs |= {name: np.ones_like(inputs[name]) for name in masks}
    return inputs | {name: filled(inputs[name].shape, ids).astype(inputs[name].dtype) for name, ids in left.items()}


def long_sizes(
    layers: Iterable[Any], shapes: Shapes, sizes: Mapping[str, int], step: Mapping[str, int]
) -> dict[str, int] | None:
    """Return sizes at which attention takes its form for large ones, which small cases never run.

    Args:
        layers: The layers of the model.
        shapes: Shape of every input; a string names a dynamic axis.
        sizes: Sizes by name on which the model runs.
        step: What a size must be a multiple of, by name, where that is not 1.

    Returns:
        The sizes, those of sequences large: axes that are alone in some input but for the batch. An image of that size
        would be too large. None where there is no attention, or no such axis.
    """
    length = max((_long_enough(layer) for layer in layers if isinstance(layer, ATTENTION)), default=0)
    alone = [[size for size in shape if isinstance(size, str) and size != BATCH] for shape in shapes.values()]
    sequences = {symbol for symbols in alone if len(symbols) == 1 for symbol in symbols}
    if not length or not sequences:
        return None
    longer = {symbol: -(-length // step.get(symbol, 1)) * step.get(symbol, 1) for symbol in sequences}
    longer = {symbol: max(size, sizes[symbol]) for symbol, size in longer.items()}
    return {**sizes, **longer, **({BATCH: LONG_ROWS} if BATCH in sizes else {})}


def _long_enough(layer: Any) -> int:
    """Return how many positions are enough for the form for large sizes, however a layer is called."""
    is_additive = isinstance(layer, ADDITIVE)
    return max(least.positions() for kind, least in LARGE.items() if (kind == "additive") == is_additive)


def numbers_at(case: Case, sizes: Mapping[str, int], longer: Mapping[str, int]) -> int:
    """Return how many numbers the largest output of a case will have at longer sizes, told by the sizes it has now."""
    grown = {size: longer[symbol] for symbol, size in sizes.items()}
    shapes = ([grown.get(size) or size for size in output.shape] for output in case.outputs.values())
    return max(math.prod(shape) for shape in shapes)


def rows_to_choose_in(case: Case, widest: int) -> int:
    """Return how many rows a case must have to show a slightly wrong choice: 0 if no output is chosen.

    A wrong score shows in any row; the integer or boolean that is chosen by it only where it decides. `widest` is what
    the model computes for each of its positions at most.
    """
    chosen = [max(output.size // max(len(output), 1), 1) for output in case.outputs.values() if _is_chosen(output)]
    if not chosen:
        return 0
    largest = max(
        array.size // max(len(array), 1) for array in (*case.inputs.values(), *case.outputs.values()) if array.ndim
    )
    return max(1, min(CHOICES // min(chosen), NUMBERS // max(largest, 1), BETWEEN // max(largest * widest, 1)))


def _is_chosen(output: np.ndarray) -> bool:
    return output.ndim > 0 and output.dtype.kind != "f"


def _left(name: str, source: Source, seen: Sequence[Arrays]) -> np.ndarray:
    assert source.ids is not None
    if len(source.ids.dealt) > ROWS:
        return np.empty(0, np.int64)
    return every(source.ids, np.concatenate([np.empty(0), *(inputs[name].ravel() for inputs in seen)]))
