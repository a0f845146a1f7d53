"""Find and name the dynamic axes of model inputs."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .._errors import InputError
from .._format.names import Arrays
from .._options import Options
from .._signature.signature import InputSpec, Signature
from .axis_groups import Axis, Group, choose_distinct_sizes, find_groups
from .trial_runs import NAN_OR_EMPTY, RunFailure, TrialRuns

BATCH = "batch"
BATCH_SIZE = 3
# Tried for unknown lengths, in turn. The multiples are for images that are halved and doubled, for patches and windows:
# of 2, 4, 8, 16 and 32, of 3, 5, 6, 7, 9, 10, 12 and 14. Three positions at a stride of 32 need 96 pixels, or 160 with
# 'valid' convolutions. The sizes for tables of few positions, 4, 3 and 2, come late because larger sizes reveal
# required multiples.
TRIAL_LENGTHS = (6, 12, 16, 28, 32, 36, 60, 64, 4, 3, 2, 96, 160, 224, 256, 1024)
MAX_TRIAL_LENGTH = 2**14  # tried last, for sound and sequences of DNA
MIN_POSITIONS = 3  # of a layer output: two padded border positions and one inner position per open axis
MAX_TRIAL_ELEMENTS = 2**22  # numbers in an input that is tried: no image is so long on each side
REQUESTED_REASON = "as asked"
ONE_SIZE_REASON = "Keras runs the model on no other size that was tried"
UNEQUAL_REASON = "several inputs must change together here, and their sizes are not equal"
Shapes = dict[str, tuple[str | int, ...]]  # of every input; a string names a dynamic axis


@dataclass(frozen=True)
class Axes:
    """The axes of a model's inputs."""

    shapes: Shapes
    base: dict[str, int]  # sizes by name on which the model runs
    distinct: dict[str, int]  # sizes on which it runs, no two of which are equal, or the base if there are none
    multiples: dict[str, int]  # of which the size of an axis must be one, by name, unless 1
    static: dict[str, str]  # reasons by name of static axes that the model leaves open
    fixed: dict[Axis, int]  # sizes of such axes

    def get_axis_sizes(self, named: Mapping[str, int]) -> dict[Axis, int]:
        """Return the size of each axis that may vary or might have varied, of the sizes by name."""
        return self.fixed | {axis: named[symbol] for axis, symbol in iterate_named_axes(self.shapes)}


def iterate_named_axes(shapes: Shapes) -> Iterator[tuple[Axis, str]]:
    """Yield the dynamic axes of shapes, each with its name."""
    for name, shape in shapes.items():
        yield from (((name, axis), symbol) for axis, symbol in enumerate(shape) if isinstance(symbol, str))


def name_axes(signature: Signature, samples: Arrays, runs: TrialRuns, options: Options) -> Axes:
    """Return the inputs' shapes with names for dynamic axes, and sizes by name on which the model runs.

    A name is the first input's that has the axis: `keys_length` for axis 1 of `keys`, `image_axis_2` beyond it. Axes
    share a name only if the model was seen to run on several sizes of theirs, and not to run where they differ. An axis
    for which no second size is known to do is static: what nobody has seen to work is not promised, and a file that
    takes one size says so. The sizes of samples are tried first.

    Raises:
        InputError: Keras cannot run the model on any size tried, or on those of static axes; or a name is unknown.
    """
    search = _AxisSearch(signature.inputs, signature.is_functional, samples, runs)
    base, named = search.base, search.name_groups()
    varying = {name: group for name, group in named.items() if _is_dynamic(group, base)}
    static = {name: group for name, group in named.items() if name not in varying}
    axes = Axes(
        shapes=search.shapes({axis: name for name, group in varying.items() for axis in group.axes}),
        base={name: base[group.axes[0]] for name, group in varying.items()},
        distinct=search.choose_distinct_sizes(varying),
        multiples={name: group.multiple for name, group in varying.items() if group.multiple not in (None, 1)},
        static={name: UNEQUAL_REASON if group.multiple else ONE_SIZE_REASON for name, group in static.items()},
        fixed={axis: base[axis] for group in static.values() for axis in group.axes},
    )
    return _fix_axes(axes, options, samples, runs)


def _is_dynamic(group: Group, base: Mapping[Axis, int]) -> bool:
    return group.multiple is not None and len({base[axis] for axis in group.axes}) == 1


@dataclass(frozen=True)
class _AxisSearch:
    """Search for the dynamic axes of a model's inputs, by runs on trial sizes."""

    specs: Sequence[InputSpec]
    is_functional: bool
    samples: Arrays
    runs: TrialRuns

    @cached_property
    def free(self) -> list[Axis]:
        """The axes that may vary: those without a static size.

        A subclassed model says nothing of its axes. There the last axis of floats is their features, and whether the
        others vary is to be found out.
        """
        axes = [(spec, axis) for spec in self.specs for axis in range(len(spec.shape))]
        if self.is_functional:
            return [(spec.name, axis) for spec, axis in axes if spec.shape[axis] is None]
        return [(s.name, axis) for s, axis in axes if "float" not in s.dtype or axis < max(len(s.shape) - 1, 1)]

    @cached_property
    def batch(self) -> list[Axis]:
        """The first axes, which are the batch unless samples differ there, as nodes and edges of one graph do."""
        first = [axis for axis in self.free if axis[1] == 0]
        return first if len({self.samples[name].shape[0] for name, _ in first if name in self.samples}) <= 1 else []

    @cached_property
    def base(self) -> dict[Axis, int]:
        """Sizes on which the model gives numbers: the samples' own, or the first of a few lengths that works."""
        failures: list[RunFailure] = []
        for sizes in self._list_candidates():
            if MAX_TRIAL_LENGTH in sizes.values() and {failure.message for failure in failures} == {NAN_OR_EMPTY}:
                break  # NaN at all shorter lengths: a longer input will not help
            if (failure := self.runs.find_failure(sizes)) is None:
                return sizes
            failures.append(failure)
        raise InputError(
            f"{failures[0].sentence}. Where `predict` of the model runs, pass what it runs on as `sample_inputs`; else "
            "the fault is in the model."
        )

    def _list_candidates(self) -> list[dict[Axis, int]]:
        """Return the sizes to try, in order."""
        sampled = {self.samples[name].shape[axis] for name, axis in self.free if name in self.samples and axis > 0}
        batches = (BATCH_SIZE, *{self.samples[name].shape[0] for name, _ in self.batch if name in self.samples})
        candidates: list[dict[Axis, int]] = []
        # first not below 2: an axis of size 1 broadcasts, and what must agree would seem not to
        for length, lowest, rows in itertools.product(
            (*sorted(sampled), *TRIAL_LENGTHS, MAX_TRIAL_LENGTH), (2, 1), batches
        ):
            sizes = self._build_candidate(length, lowest) | dict.fromkeys(self.batch, rows)
            if sizes not in candidates and (not candidates or self._count_largest_input(sizes) <= MAX_TRIAL_ELEMENTS):
                candidates.append(sizes)
        # A layer may not support inference or declare a wrong shape. If no size is accepted (with samples, the
        # candidates have the sizes of the samples), only runs of Keras decide.
        self.runs.infers_shapes = any(self.runs.infer_positions(sizes) is not None for sizes in candidates)
        first = self.runs.infer_positions(candidates[0])
        if sampled or (first is not None and min(first, default=MIN_POSITIONS) >= MIN_POSITIONS):
            return candidates
        # At such sizes a strided convolution reads mostly padding, so most of its kernel is untested.
        return sorted(candidates, key=self._count_negative_positions)

    def _count_negative_positions(self, sizes: dict[Axis, int]) -> float:
        positions = None if MAX_TRIAL_LENGTH in sizes.values() else self.runs.infer_positions(sizes)
        return math.inf if positions is None else -sum(min(MIN_POSITIONS, size) for size in positions)

    def _count_largest_input(self, sizes: Mapping[Axis, int]) -> int:
        """Return the count of numbers in the largest input."""
        return max(
            math.prod(sizes.get((spec.name, axis), size or 1) for axis, size in enumerate(spec.shape))
            for spec in self.specs
        )

    def _build_candidate(self, length: int, lowest: int) -> dict[Axis, int]:
        """Return the sizes of samples and static axes, at least `lowest`, and `length` for other axes."""
        build_shapes = {spec.name: spec.shape for spec in self.specs}
        build_shapes |= {name: sample.shape for name, sample in self.samples.items()}
        sizes = {(name, axis): build_shapes[name][axis] for name, axis in self.free}
        return {axis: length if size is None else max(lowest, size) for axis, size in sizes.items()}

    def check_sizes(self, changed: Mapping[Axis, int]) -> str | None:
        """Return Keras's message about changed sizes, or `None` if the model runs."""
        failure = self.runs.find_failure({**self.base, **changed})
        return None if failure is None else failure.message

    def name_groups(self) -> dict[str, Group]:
        """Return the groups of all free axes by name, in the order of their first axes."""
        firsts = [(min(map(self.free.index, group.axes)), group) for group in self._find_groups()]
        groups = [(self.free[first], group) for first, group in sorted(firsts, key=lambda pair: pair[0])]
        with_batch = [group for _, group in groups if any(axis == 0 for _, axis in group.axes)]
        largest = max(with_batch, key=lambda group: len(group.axes), default=None)
        return {
            BATCH if group is largest else f"{name}_length" if axis == 1 else f"{name}_axis_{axis}": group
            for (name, axis), group in groups
        }

    def _find_groups(self) -> list[Group]:
        """Return the groups of all free axes, the batch first."""
        batch, rest = tuple(self.batch), [axis for axis in self.free if axis not in self.batch]
        if batch and self.check_sizes({axis: self.base[axis] + 1 for axis in batch}) is None:
            return [Group(batch, 1, self.base[batch[0]] + 1), *find_groups(rest, self.base, self.check_sizes)]
        if not self.is_functional:  # that the first axes are the batch was a guess
            return find_groups(self.free, self.base, self.check_sizes)
        return [*([Group(batch, None, None)] if batch else []), *find_groups(rest, self.base, self.check_sizes)]

    def shapes(self, names: Mapping[Axis, str]) -> Shapes:
        """Return the shape of every input, with names of dynamic axes; the sizes of all free axes are in `base`."""
        return {
            spec.name: tuple(
                names.get((spec.name, axis), self.base.get((spec.name, axis), size or 0))
                for axis, size in enumerate(spec.shape)
            )
            for spec in self.specs
        }

    def choose_distinct_sizes(self, varying: Mapping[str, Group]) -> dict[str, int]:
        """Return sizes by name, none of which equals another, or the nearest to that on which the model runs."""
        groups = list(varying.values())
        near = {axis: group.other_size for group in groups for axis in group.axes if group.other_size is not None}
        candidates = (choose_distinct_sizes(groups, self.base), near)
        sizes = next((sizes for sizes in candidates if self.check_sizes(sizes) is None), self.base)
        return {name: sizes[group.axes[0]] for name, group in varying.items()}


def _fix_axes(axes: Axes, options: Options, samples: Arrays, runs: TrialRuns) -> Axes:
    """Return the axes with some of them static, at the size that was asked for, or the samples'."""
    if unknown := sorted(set(options.static_axes) - set(axes.base)):
        raise InputError(f"`static_axes` names {unknown}. The dynamic axes of this model are {list(axes.base)}.")
    reasons = {**dict.fromkeys(options.static_axes, REQUESTED_REASON), **options.untraceable}
    if not reasons:
        return axes
    fixed: dict[Axis, int] = {}
    for symbol, reason in reasons.items():
        of_symbol = [axis for axis, name in iterate_named_axes(axes.shapes) if name == symbol]
        sampled = next((samples[name].shape[axis] for name, axis in of_symbol if name in samples), None)
        size = options.static_axes.get(symbol, sampled)
        if size is None:
            raise InputError(
                f"Axis `{symbol}` is open in the model, and needs one size in the file. {reason.removesuffix('.')}. "
                f"Choose the size: pass `sample_inputs=` (`--samples`), or `static_axes={{{symbol!r}: "
                f"{axes.base[symbol]}}}` (`--static {symbol}={axes.base[symbol]}`)."
            )
        fixed |= dict.fromkeys(of_symbol, size)
    left = [name for name in axes.base if name not in reasons]
    with_static = Axes(
        shapes={
            name: tuple(fixed.get((name, axis), size) for axis, size in enumerate(shape))
            for name, shape in axes.shapes.items()
        },
        base={name: axes.base[name] for name in left},
        distinct={name: axes.distinct[name] for name in left},
        multiples={name: axes.multiples[name] for name in left if name in axes.multiples},
        static={**axes.static, **reasons},
        fixed={**axes.fixed, **fixed},
    )
    if (failure := runs.find_failure(with_static.get_axis_sizes(with_static.base))) is not None:
        raise InputError(f"{failure.sentence}, with static axes {dict(options.static_axes)}.")
    return with_static
