"""Name the dynamic axes of a model's inputs: one name where two axes must have one size, found by trying."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from .._errors import InputError
from .._standalone.verify import Arrays
from .signature import InputSpec, Signature
from .trial_runs import Axis, Drawer

BATCH = "batch"
BATCH_SIZE = 3
Shapes = dict[str, tuple[str | int, ...]]  # of every input; a string names a dynamic axis


def name_axes(signature: Signature, given: Arrays, drawer: Drawer) -> tuple[Shapes, dict[str, int]]:
    """Return the inputs' shapes with names for dynamic axes, and sizes by name on which the model runs.

    A name is the first input's that has the axis: `keys_length` for axis 1 of `keys`, `image_axis_2` beyond it.

    Args:
        signature: The model's inputs.
        given: Samples by input name; their sizes are tried first.
        drawer: Runs the Keras model.

    Raises:
        InputError: Keras cannot run the model on any size tried.
    """
    free = _free_axes(signature)
    base = _base_sizes(signature, free, given, drawer)
    names: dict[Axis, str] = {}
    for group, varies in _groups(free, base, drawer):
        name, axis = min(group, key=free.index)
        if varies or not signature.from_samples:
            symbol = BATCH if axis == 0 else f"{name}_length" if axis == 1 else f"{name}_axis_{axis}"
            names |= dict.fromkeys(group, symbol)
    shapes: Shapes = {}
    for spec in signature.inputs:
        named = [names.get((spec.name, axis), size) for axis, size in enumerate(spec.shape)]
        shapes[spec.name] = tuple(size for size in named if size is not None)  # all are known: free axes have names
    return shapes, {symbol: base[axis] for axis, symbol in reversed(names.items())}


def _free_axes(signature: Signature) -> list[Axis]:
    """Return the axes that may vary: those without a static size.

    A subclassed model says nothing of its axes. There the first axis is the batch if all inputs share its size, the
    last axis of floats is their features, and whether the others vary is for `_groups` to find out.
    """
    specs = signature.inputs
    if not signature.from_samples:
        return [(spec.name, axis) for spec in specs for axis, size in enumerate(spec.shape) if size is None]
    batched = len({spec.shape[0] for spec in specs if spec.shape}) == 1
    return [
        (spec.name, axis)
        for spec in specs
        for axis in range(0 if batched else 1, len(spec.shape) - (_is_float(spec) and len(spec.shape) > 1))
    ]


def _is_float(spec: InputSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))


def _base_sizes(signature: Signature, free: list[Axis], given: Arrays, drawer: Drawer) -> dict[Axis, int]:
    """Return sizes on which the model gives numbers: the samples' own, or the first of a few lengths that works."""
    sampled = {given[name].shape[axis] for name, axis in free if name in given and axis > 0}
    problem = ""
    for length in (*sorted(sampled), 6, 16, 64, 256):
        for lowest in (2, 1):  # first not below 2: an axis of size 1 broadcasts, and what must agree would seem not to
            sizes = _sizes(signature, free, given, length, lowest)
            if (found := drawer.problem(sizes)) is None:
                return sizes
            problem = problem or found
    raise InputError(f"{problem}. Pass `sample_inputs` that the model is made for.")


def _sizes(signature: Signature, free: list[Axis], given: Arrays, length: int, lowest: int) -> dict[Axis, int]:
    specs = {spec.name: spec for spec in signature.inputs}
    sizes = {}
    for name, axis in free:
        known = given[name].shape[axis] if name in given else specs[name].shape[axis]
        if axis == 0:
            sizes[name, axis] = BATCH_SIZE  # samples may hold thousands of rows
        else:
            sizes[name, axis] = length if known is None else max(lowest, known)
    return sizes


def _groups(free: list[Axis], base: dict[Axis, int], drawer: Drawer) -> list[tuple[set[Axis], bool]]:
    """Return the sets of axes that must have one size, each with whether that size was seen to vary.

    An axis that can change while all others stay is free of them; else the smallest set that can change with it.
    """
    batch = {axis for axis in free if axis[1] == 0}
    groups = [(batch, _can_change(batch, base, drawer))] if batch else []
    rest = [axis for axis in free if axis not in batch]
    while rest:
        changing = next((found for found in _candidates(rest) if _can_change(found, base, drawer)), None)
        groups.append((changing or {rest[0]}, changing is not None))
        rest = [axis for axis in rest if axis not in groups[-1][0]]
    return groups


def _candidates(rest: list[Axis]) -> Iterable[set[Axis]]:
    """Yield the sets that hold the first axis, small ones first, up to six axes."""
    for count in range(min(len(rest), 6)):
        for others in itertools.combinations(rest[1:], count):
            yield {rest[0], *others}


def _can_change(group: set[Axis], base: dict[Axis, int], drawer: Drawer) -> bool:
    changes: tuple[Callable[[int], int], ...] = (lambda size: size + 1, lambda size: size * 2)
    return any(drawer.problem(base | {axis: change(base[axis]) for axis in group}) is None for change in changes)
