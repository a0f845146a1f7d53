"""Find and name the dynamic axes of model inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .._errors import InputError
from .._format.names import Arrays
from .._options import Options
from .._signature.signature import Signature
from .axis_groups import Axis, Group, apart_sizes, find_groups
from .trial_runs import NAN, RunFailure, TrialRuns

BATCH = "batch"
BATCH_SIZE = 3
# Tried for unknown lengths, in turn. The multiples are for images that are halved and doubled, for patches and windows:
# of 2, 4, 8, 16 and 32, of 3, 5, 6, 7, 9, 10, 12 and 14. Three positions at a stride of 32 need 96 pixels, or 160 with
# 'valid' convolutions. The sizes for tables of few positions, 4, 3 and 2, come late because larger sizes reveal
# required multiples.
LENGTHS_TO_TRY = (6, 12, 16, 28, 32, 36, 60, 64, 4, 3, 2, 96, 160, 224, 256, 1024)
LONGEST = 2**14  # tried last, for sound and sequences of DNA
MIN_POSITIONS = 3  # of a layer output: two padded border positions and one inner position per open axis
MOST = 2**22  # numbers in an input that is tried: no image is so long on each side
ASKED = "as asked"
Shapes = dict[str, tuple[str | int, ...]]  # of every input; a string names a dynamic axis


@dataclass(frozen=True)
class Axes:
    """What is known of the axes of a model's inputs.

    Attributes:
        shapes: Shape of every input; a string names a dynamic axis.
        base: Sizes by name on which the model runs.
        apart: Sizes on which it runs and none of which equals another, or the base if there are none.
        multiples: What the size of an axis must be a multiple of, by name, where that is not 1.
        static: Why an axis is static that the model does not say is, by name.
        fixed: The sizes of such axes.
    """

    shapes: Shapes
    base: dict[str, int]
    apart: dict[str, int]
    multiples: dict[str, int]
    static: dict[str, str]
    fixed: dict[Axis, int]

    def sizes(self, named: Mapping[str, int]) -> dict[Axis, int]:
        """Return the size of each axis that may vary or might have varied, of the sizes by name."""
        return self.fixed | {axis: named[symbol] for axis, symbol in named_axes(self.shapes)}


def named_axes(shapes: Shapes) -> Iterator[tuple[Axis, str]]:
    """Yield the dynamic axes of shapes, each with its name."""
    for name, shape in shapes.items():
        yield from (((name, axis), symbol) for axis, symbol in enumerate(shape) if isinstance(symbol, str))


def name_axes(signature: Signature, given: Arrays, runs: TrialRuns, options: Options) -> Axes:
    """Return the inputs' shapes with names for dynamic axes, and sizes by name on which the model runs.

    A name is the first input's that has the axis: `keys_length` for axis 1 of `keys`, `image_axis_2` beyond it. Axes
    share a name only if the model was seen to run on several sizes of theirs, and not to run where they differ. An axis
    for which no second size is known to do is static: what nobody has seen to work is not promised, and a file that
    takes one size says so.

    Args:
        signature: The model's inputs.
        given: Samples by input name; their sizes are tried first.
        runs: Runs the Keras model.
        options: Which axes shall not be dynamic.

    Raises:
        InputError: Keras cannot run the model on any size tried, or on those of static axes; or a name is unknown.
    """
    free = _free_axes(signature)
    base = _base_sizes(signature, free, given, runs)
    groups = sorted(_groups(signature, free, base, given, runs), key=lambda group: free.index(_first(group, free)))
    named = [(_name(_first(group, free), group, groups), group) for group in groups]
    varying = {name: group for name, group in named if _is_dynamic(group, base)}
    found = Axes(
        shapes=_shapes(signature, varying, base),
        base={name: base[group.axes[0]] for name, group in varying.items()},
        apart=_apart(varying, base, runs),
        multiples={name: group.step for name, group in varying.items() if group.step not in (None, 1)},
        static={name: _why(group) for name, group in named if name not in varying},
        fixed={axis: base[axis] for name, group in named if name not in varying for axis in group.axes},
    )
    return _with_static(found, options, given, runs)


def _free_axes(signature: Signature) -> list[Axis]:
    """Return the axes that may vary: those without a static size.

    A subclassed model says nothing of its axes. There the last axis of floats is their features, and whether the others
    vary is to be found out.
    """
    if signature.is_functional:
        return [(spec.name, axis) for spec in signature.inputs for axis, size in enumerate(spec.shape) if size is None]
    features = {spec.name: "float" in spec.dtype and len(spec.shape) > 1 for spec in signature.inputs}
    return [(spec.name, axis) for spec in signature.inputs for axis in range(len(spec.shape) - features[spec.name])]


def _batch_axes(free: Iterable[Axis], given: Arrays) -> list[Axis]:
    """Return the first axes, which are the batch unless samples differ there, as nodes and edges of one graph do."""
    first = [axis for axis in free if axis[1] == 0]
    return first if len({given[name].shape[0] for name, _ in first if name in given}) <= 1 else []


def _base_sizes(signature: Signature, free: list[Axis], given: Arrays, runs: TrialRuns) -> dict[Axis, int]:
    """Return sizes on which the model gives numbers: the samples' own, or the first of a few lengths that works."""
    batch = _batch_axes(free, given)
    sampled = {given[name].shape[axis] for name, axis in free if name in given and axis > 0}
    batches = (BATCH_SIZE, *{given[name].shape[0] for name, _ in batch if name in given})
    candidates: list[dict[Axis, int]] = []
    # first not below 2: an axis of size 1 broadcasts, and what must agree would seem not to
    for length, lowest, rows in itertools.product((*sorted(sampled), *LENGTHS_TO_TRY, LONGEST), (2, 1), batches):
        sizes = _sizes(signature, free, given, length, lowest) | dict.fromkeys(batch, rows)
        if sizes not in candidates and (not candidates or _largest(signature, sizes) <= MOST):
            candidates.append(sizes)
    # A layer may not support inference or declare a wrong shape. If no size is accepted (with samples, the candidates
    # have the sizes of the samples), only runs of Keras decide.
    runs.infers_shapes = any(runs.positions(sizes) is not None for sizes in candidates)

    def scarcity(sizes: dict[Axis, int]) -> float:
        positions = None if LONGEST in sizes.values() else runs.positions(sizes)
        return math.inf if positions is None else -sum(min(MIN_POSITIONS, size) for size in positions)

    first = runs.positions(candidates[0])
    if not sampled and (first is None or min(first, default=MIN_POSITIONS) < MIN_POSITIONS):
        # At such sizes a strided convolution reads mostly padding, so most of its kernel is untested.
        candidates.sort(key=scarcity)
    problems: list[RunFailure] = []
    for sizes in candidates:
        if LONGEST in sizes.values() and {problem.message for problem in problems} == {NAN}:
            break  # NaN at all shorter lengths: a longer input will not help
        if (found := runs.failure(sizes)) is None:
            return sizes
        problems.append(found)
    raise InputError(
        f"{problems[0].sentence}. Where `predict` of the model runs, pass what it runs on as `sample_inputs`; else the "
        "fault is in the model."
    )


def _largest(signature: Signature, sizes: Mapping[Axis, int]) -> int:
    """Return how many numbers the largest input has."""
    return max(
        math.prod(sizes.get((spec.name, axis), size or 1) for axis, size in enumerate(spec.shape))
        for spec in signature.inputs
    )


def _sizes(signature: Signature, free: list[Axis], given: Arrays, length: int, lowest: int) -> dict[Axis, int]:
    specs = {spec.name: spec for spec in signature.inputs}
    sizes = {}
    for name, axis in free:
        known = given[name].shape[axis] if name in given else specs[name].shape[axis]
        sizes[name, axis] = length if known is None else max(lowest, known)
    return sizes


def _groups(
    signature: Signature, free: list[Axis], base: dict[Axis, int], given: Arrays, runs: TrialRuns
) -> list[Group]:
    """Return the groups of all free axes, the batch first."""

    def problem(changed: Mapping[Axis, int]) -> str | None:
        found = runs.failure({**base, **changed})
        return None if found is None else found.message

    batch = tuple(_batch_axes(free, given))
    if batch and problem({axis: base[axis] + 1 for axis in batch}) is None:
        rest = [axis for axis in free if axis not in batch]
        return [Group(batch, 1, base[batch[0]] + 1), *find_groups(rest, base, problem)]
    if not signature.is_functional:  # that the first axes are the batch was a guess
        return find_groups(free, base, problem)
    fixed = [Group(batch, None, None)] if batch else []
    return fixed + find_groups([axis for axis in free if axis not in batch], base, problem)


def _first(group: Group, free: list[Axis]) -> Axis:
    return min(group.axes, key=free.index)


def _name(first: Axis, group: Group, groups: list[Group]) -> str:
    name, axis = first
    with_batch = [each for each in groups if any(axis == 0 for _, axis in each.axes)]
    if group in with_batch and group == max(with_batch, key=lambda each: (len(each.axes), -groups.index(each))):
        return BATCH
    return f"{name}_length" if axis == 1 else f"{name}_axis_{axis}"


def _is_dynamic(group: Group, base: Mapping[Axis, int]) -> bool:
    return group.step is not None and len({base[axis] for axis in group.axes}) == 1


def _why(group: Group) -> str:
    if group.step is None:
        return "Keras runs the model on no other size that was tried"
    return "several inputs must change together here, and their sizes are not equal"


def _shapes(signature: Signature, varying: Mapping[str, Group], base: Mapping[Axis, int]) -> Shapes:
    names = {axis: name for name, group in varying.items() for axis in group.axes}
    shapes: Shapes = {}
    for spec in signature.inputs:
        axes = [(spec.name, axis) for axis in range(len(spec.shape))]
        sizes = [names.get(axis, base.get(axis, size)) for axis, size in zip(axes, spec.shape, strict=True)]
        shapes[spec.name] = tuple(size for size in sizes if size is not None)  # all are known: free axes are in `base`
    return shapes


def _apart(varying: Mapping[str, Group], base: Mapping[Axis, int], runs: TrialRuns) -> dict[str, int]:
    """Return sizes by name, none of which equals another, or the nearest to that on which the model runs."""
    groups = list(varying.values())
    near = {axis: group.other for group in groups for axis in group.axes if group.other is not None}
    for sizes in (apart_sizes(groups, base), near):
        if runs.failure({**base, **sizes}) is None:
            return {name: sizes[group.axes[0]] for name, group in varying.items()}
    return {name: base[group.axes[0]] for name, group in varying.items()}


def _with_static(axes: Axes, options: Options, given: Arrays, runs: TrialRuns) -> Axes:
    """Return the axes with some of them static, at the size that was asked for, or the samples', or the base's."""
    if unknown := sorted(set(options.static_axes) - set(axes.base)):
        raise InputError(f"`static_axes` names {unknown}. The dynamic axes of this model are {list(axes.base)}.")
    fixed: dict[Axis, int] = {}
    reasons = {**dict.fromkeys(options.static_axes, ASKED), **options.untraceable}
    for symbol, reason in reasons.items():
        places = [axis for axis, each in named_axes(axes.shapes) if each == symbol]
        sampled = next((given[name].shape[axis] for name, axis in places if name in given), None)
        size = options.static_axes.get(symbol, sampled)
        if size is None:
            raise InputError(
                f"Axis `{symbol}` is open in the model, and needs one size in the file. {reason.removesuffix('.')}. "
                f"Choose the size: pass `sample_inputs=` (`--samples`), or `static_axes={{{symbol!r}: "
                f"{axes.base[symbol]}}}` (`--static {symbol}={axes.base[symbol]}`)."
            )
        fixed |= dict.fromkeys(places, size)

    def left(named: Mapping[str, int]) -> dict[str, int]:
        return {name: size for name, size in named.items() if name not in reasons}

    shapes = {
        name: tuple(fixed.get((name, axis), size) for axis, size in enumerate(shape))
        for name, shape in axes.shapes.items()
    }
    found = replace(
        axes,
        shapes=shapes,
        base=left(axes.base),
        apart=left(axes.apart),
        multiples=left(axes.multiples),
        static={**axes.static, **reasons},
        fixed={**axes.fixed, **fixed},
    )
    if reasons and (problem := runs.failure(found.sizes(found.base))) is not None:
        raise InputError(f"{problem.sentence}, with static axes {dict(options.static_axes)}.")
    return found
