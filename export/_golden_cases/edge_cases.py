"""Golden cases for full vocabularies, empty texts, unusual padding and close choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .._format.names import Arrays, Case
from .input_generators import Source
from .random_inputs import every, filled, mask, padded_elsewhere

EVERY_ID = "every id"
EVERY_TEXT, EMPTY_TEXT = "every text", "empty text"
MANY_ROWS = "many rows"
PADDED_ELSEWHERE = "padding elsewhere"
ROWS = 4096  # of the largest vocabulary of which every row is looked up
CHOICES = 4096  # integers or booleans in the case of many rows
SEARCHED = 4  # times as many rows are drawn for it, of which those with the closest choices are taken
MOVED = (0.05, 0.3)  # by which shares floats are moved to see which choices are close
BETWEEN = 2**24  # numbers between input and output, roughly
NUMBERS = 2**21  # an array of these cases holds at most


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


def with_empty_texts(made: Mapping[str, Source], inputs: Arrays) -> Arrays | None:
    """Return inputs in which all strings are empty, but for words that cannot be others, if there are any."""
    free = [name for name, source in made.items() if source.words and not source.words.is_closed]
    return inputs | {name: np.full_like(inputs[name], "") for name in free} if free else None


def with_every_text(made: Mapping[str, Source], draw: Callable[[int], Arrays]) -> Arrays | None:
    """Return inputs of strings with all that is to be tried of them, one row after the other, if there are any.

    Args:
        made: The source of each input.
        draw: Draws inputs of so many rows, or of as many as there must be.
    """
    tried = {name: source.words.every for name, source in made.items() if source.words}
    if not any(tried.values()):
        return None
    inputs = draw(max(map(len, tried.values())))
    found = {name: np.array(strings, object) for name, strings in tried.items() if strings}
    return inputs | {name: np.resize(strings, inputs[name].shape) for name, strings in found.items()}


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


def with_close_choices(
    made: Mapping[str, Source], rows: int, draw: Callable[[int], Arrays], run: Callable[[Arrays], Arrays]
) -> Arrays:
    """Return inputs of so many rows, first those that choose most otherwise once their floats are moved a little.

    A slightly wrong score changes these choices before any other.
    """
    found = draw(rows)
    moving = [name for name, source in made.items() if found[name].dtype.kind == "f" and source.draw is not mask]
    if not moving or any(array.shape[:1] != (rows,) for array in found.values()):
        return found
    rng = np.random.default_rng(0)
    drawn = [found, *(draw(rows) for _ in range(SEARCHED - 1))]
    try:
        close = np.concatenate([_close_choices(inputs, moving, run, rng) for inputs in drawn])
    except Exception:  # noqa: BLE001 - a model may not take numbers that are moved, and says so in any way
        return found
    first = np.argsort(-close, kind="stable")[:rows]
    return {name: np.concatenate([inputs[name] for inputs in drawn])[first] for name in found}


def _close_choices(
    inputs: Arrays, moving: Sequence[str], run: Callable[[Arrays], Arrays], rng: np.random.Generator
) -> np.ndarray:
    """Return by row how many choices are others once floats are moved."""
    found, rows = run(inputs), len(inputs[moving[0]])
    count = np.zeros(rows, int)
    for share in MOVED:
        noise = {name: 1 + share * rng.standard_normal(inputs[name].shape) for name in moving}
        moved = run(inputs | {name: (inputs[name] * noise[name]).astype(inputs[name].dtype) for name in moving})
        for name, chosen in found.items():
            if _is_chosen(chosen) and len(chosen) == rows and moved[name].shape == chosen.shape:
                count += (moved[name] != chosen).reshape(rows, -1).sum(1)
    return count


def _is_chosen(output: np.ndarray) -> bool:
    return output.ndim > 0 and output.dtype.kind != "f"


def _left(name: str, source: Source, seen: Sequence[Arrays]) -> np.ndarray:
    assert source.ids is not None
    if len(source.ids.dealt) > ROWS:
        return np.empty(0, np.int64)
    return every(source.ids, np.concatenate([np.empty(0), *(inputs[name].ravel() for inputs in seen)]))
