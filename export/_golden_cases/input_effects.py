"""Find which outputs change when one input changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._format.names import Arrays, Case
from .._format.parity_report import differences
from .input_generators import LENGTHS, Source

TRIES = 4  # how often an input is changed before it is said to move nothing


def known_of_inputs(
    made: Mapping[str, Source],
    cases: Sequence[Case],
    at: int,
    draw: Callable[[str], Arrays],
    outputs: Callable[[Arrays], Arrays],
    tried: Mapping[str, Sequence[int]],
) -> dict[str, dict[str, Any]]:
    """Return what the cases show of each input: what it `moves`, and its `ids` with `ids_seen`.

    Args:
        made: The source of each input.
        cases: All golden cases.
        at: The one whose inputs are changed, one after the other.
        draw: Draws all inputs anew, in the sizes of that case, with a pattern of lengths.
        outputs: Runs the model.
        tried: Further integers that an input may hold.
    """
    noise = differences(cases[at].outputs, outputs(cases[at].inputs))
    known: dict[str, dict[str, Any]] = {}
    for name, source in made.items():
        known[name] = {"moves": _moved(name, source, cases[at], draw, outputs, noise, tried.get(name, ()))}
        if source.ids is not None:
            seen = np.unique(np.concatenate([case.inputs[name].ravel() for case in cases]))
            known[name] |= {"ids": source.ids.high - source.ids.low + 1, "ids_seen": len(seen)}
    return known


def _moved(
    name: str,
    source: Source,
    case: Case,
    draw: Callable[[str], Arrays],
    outputs: Callable[[Arrays], Arrays],
    noise: Mapping[str, float],
    tried: Sequence[int],
) -> list[str] | None:
    """Return the outputs that change when one input does; `None` where it cannot be changed."""
    moved: dict[str, None] = {}
    changed = False
    for other in _others(name, source, case, draw, tried):
        if np.array_equal(other, case.inputs[name], equal_nan=other.dtype.kind == "f"):
            continue
        try:
            found = outputs(case.inputs | {name: other})
        except Exception:  # noqa: BLE001 - what is no input for this model tells nothing
            continue
        changed = True
        apart = differences(case.outputs, found)
        moved |= dict.fromkeys(output for output, size in apart.items() if size > 2 * noise[output])
        if len(moved) == len(case.outputs):
            break
    return [output for output in case.outputs if output in moved] if changed else None


def _others(
    name: str, source: Source, case: Case, draw: Callable[[str], Arrays], tried: Sequence[int]
) -> Iterator[np.ndarray]:
    """Yield other arrays for an input."""
    array = case.inputs[name]
    if source.lengths:
        yield from (draw(pattern)[name] for pattern in LENGTHS)
    elif not source.sampled:
        yield from (draw("mixed")[name] for _ in range(TRIES))
    else:
        yield np.roll(array, 1, axis=0) if array.ndim else array
        yield np.roll(array, 1)  # through all axes: numbers that the user has passed, in other places
        if array.dtype.kind == "f":
            yield (array * np.linspace(0.5, 1.5, max(array.size, 2))[: array.size].reshape(array.shape)).astype(
                array.dtype
            )
        yield from (np.full_like(array, value) for value in tried)
