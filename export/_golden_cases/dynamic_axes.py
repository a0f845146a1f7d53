"""Search for the dynamic axes of model inputs, with their names.

1. Base sizes: the sizes of samples, else the first of TRIAL_LENGTHS on which the model returns numbers. Lengths are
   tried first that give every open axis of every layer output MIN_POSITIONS positions, by static shape inference.
2. The batch: the first axes of all inputs, if the model runs with all of them increased by 1.
3. All other axes: groups of axes that must have equal sizes (`axis_groups.py`). A group for which no second size works
   is static: a file that accepts one size says so.
4. Distinct sizes: the base sizes changed so that no two groups have the same size.
"""

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
# In the order of trials. Multiples of 2, 4, 8, 16 and 32, and of 3, 5, 6, 7, 9, 10, 12 and 14, suit images that are
# halved and doubled, patches and windows. Three positions at stride 32 need 96 pixels, or 160 with 'valid' padding. The
# sizes for tables of few positions, 4, 3 and 2, come late because larger sizes reveal required multiples.
TRIAL_LENGTHS = (6, 12, 16, 28, 32, 36, 60, 64, 4, 3, 2, 96, 160, 224, 256, 1024)
MAX_TRIAL_LENGTH = 2**14  # tried last, for audio and DNA
MIN_POSITIONS = 3  # per open axis of a layer output: two padded border positions, one inner position
MAX_TRIAL_ELEMENTS = 2**22  # per input: excludes images of a trial length for sequences on each side
REQUESTED_REASON = "as asked"
ONE_SIZE_REASON = "Keras runs the model on no other size that was tried"
UNEQUAL_REASON = "several inputs must change together here, and their sizes are not equal"
Shapes = dict[str, tuple[str | int, ...]]  # by input; a string names a dynamic axis


@dataclass(frozen=True)
class Axes:
    """Axes of the inputs of a model."""

    shapes: Shapes
    base: dict[str, int]  # sizes by name on which the model runs
    distinct: dict[str, int]  # different sizes on which the model runs, or the base sizes if none are known
    multiples: dict[str, int]  # divisors above 1 of all sizes of an axis, by name
    static: dict[str, str]  # reasons by name of static axes that are dynamic in the model
    fixed: dict[Axis, int]  # sizes of these axes

    def get_axis_sizes(self, named_sizes: Mapping[str, int]) -> dict[Axis, int]:
        """Return the sizes of all axes without a declared size, for sizes by name of the dynamic axes."""
        return self.fixed | {axis: named_sizes[symbol] for axis, symbol in iterate_named_axes(self.shapes)}


def iterate_named_axes(shapes: Shapes) -> Iterator[tuple[Axis, str]]:
    """Yield the dynamic axes of shapes with their names."""
    for name, shape in shapes.items():
        yield from (((name, axis), symbol) for axis, symbol in enumerate(shape) if isinstance(symbol, str))


def name_axes(signature: Signature, samples: Arrays, runs: TrialRuns, options: Options) -> Axes:
    """Find the dynamic axes of all inputs, and sizes by name on which the model runs.

    A name is that of the first input with the axis: `keys_length` for axis 1 of `keys`, `image_axis_2` for later axes.
    Axes share a name if the model ran on several sizes of them together, but failed on different sizes.

    Raises:
        InputError: If Keras cannot run the model on any trial size, or on the sizes of static axes, or if the options
            name an unknown axis.
    """
    search = _AxisSearch(signature.inputs, signature.is_functional, samples, runs)
    base, groups = search.base, search.name_groups()
    dynamic_groups = {name: group for name, group in groups.items() if _is_dynamic(group, base)}
    static_groups = {name: group for name, group in groups.items() if name not in dynamic_groups}
    axes = Axes(
        shapes=search.shapes({axis: name for name, group in dynamic_groups.items() for axis in group.axes}),
        base={name: base[group.axes[0]] for name, group in dynamic_groups.items()},
        distinct=search.choose_distinct_sizes(dynamic_groups),
        multiples={name: group.multiple for name, group in dynamic_groups.items() if group.multiple not in (None, 1)},
        static={name: UNEQUAL_REASON if group.multiple else ONE_SIZE_REASON for name, group in static_groups.items()},
        fixed={axis: base[axis] for group in static_groups.values() for axis in group.axes},
    )
    return _fix_axes(axes, options, samples, runs)


def _is_dynamic(group: Group, base: Mapping[Axis, int]) -> bool:
    return group.multiple is not None and len({base[axis] for axis in group.axes}) == 1


@dataclass(frozen=True)
class _AxisSearch:
    """Search for the dynamic axes of the inputs of a model, by runs on trial sizes."""

    specs: Sequence[InputSpec]
    is_functional: bool
    samples: Arrays
    runs: TrialRuns

    @cached_property
    def free_axes(self) -> list[Axis]:
        """Return the axes that may vary; in a subclassed model all axes except the last axis of floats (features)."""
        axes = [(spec, axis) for spec in self.specs for axis in range(len(spec.shape))]
        if self.is_functional:
            return [(spec.name, axis) for spec, axis in axes if spec.shape[axis] is None]
        return [(s.name, axis) for s, axis in axes if "float" not in s.dtype or axis < max(len(s.shape) - 1, 1)]

    @cached_property
    def batch(self) -> list[Axis]:
        """Return the first axes, or none if samples have different sizes there, as nodes and edges of one graph."""
        first = [axis for axis in self.free_axes if axis[1] == 0]
        return first if len({self.samples[name].shape[0] for name, _ in first if name in self.samples}) <= 1 else []

    @cached_property
    def base(self) -> dict[Axis, int]:
        """Return the first candidate sizes on which the model returns numbers."""
        failures: list[RunFailure] = []
        for sizes in self._list_candidates():
            if MAX_TRIAL_LENGTH in sizes.values() and {failure.message for failure in failures} == {NAN_OR_EMPTY}:
                break  # NaN at all shorter lengths is not caused by the length
            if (failure := self.runs.find_failure(sizes)) is None:
                return sizes
            failures.append(failure)
        raise InputError(
            f"{failures[0].sentence}. If `model.predict` works, pass its arrays as `sample_inputs` (`--samples`). If "
            "it fails too, fix the model first."
        )

    def _list_candidates(self) -> list[dict[Axis, int]]:
        """Return the sizes to try, in order."""
        axes = [(name, axis) for name, axis in self.free_axes if name in self.samples and axis > 0]
        sampled_sizes = {self.samples[name].shape[axis] for name, axis in axes}
        batches = (BATCH_SIZE, *{self.samples[name].shape[0] for name, _ in self.batch if name in self.samples})
        candidates: list[dict[Axis, int]] = []
        # Sizes are at least 2 at first: an axis of size 1 broadcasts, so that tied axes would seem to be free.
        lengths = (*sorted(sampled_sizes), *TRIAL_LENGTHS, MAX_TRIAL_LENGTH)
        for length, min_size, rows in itertools.product(lengths, (2, 1), batches):
            sizes = self._build_candidate(length, min_size) | dict.fromkeys(self.batch, rows)
            if sizes not in candidates and (not candidates or self._count_largest_input(sizes) <= MAX_TRIAL_ELEMENTS):
                candidates.append(sizes)
        # A layer may lack static shape inference, or declare a wrong shape. If inference accepts no candidate (with
        # samples, the candidates have their sizes), only runs of Keras decide.
        self.runs.infers_shapes = any(self.runs.infer_positions(sizes) is not None for sizes in candidates)
        positions = self.runs.infer_positions(candidates[0])
        if sampled_sizes or (positions is not None and min(positions, default=MIN_POSITIONS) >= MIN_POSITIONS):
            return candidates
        # With fewer positions a strided convolution reads mostly padding, and most of its kernel is untested.
        return sorted(candidates, key=self._compute_sort_key)

    def _compute_sort_key(self, sizes: dict[Axis, int]) -> float:
        positions = None if MAX_TRIAL_LENGTH in sizes.values() else self.runs.infer_positions(sizes)
        return math.inf if positions is None else -sum(min(MIN_POSITIONS, size) for size in positions)

    def _count_largest_input(self, sizes: Mapping[Axis, int]) -> int:
        """Return the number of elements of the largest input."""
        return max(
            math.prod(sizes.get((spec.name, axis), size or 1) for axis, size in enumerate(spec.shape))
            for spec in self.specs
        )

    def _build_candidate(self, length: int, min_size: int) -> dict[Axis, int]:
        """Return the sizes of samples and static axes, at least `min_size`, and `length` for other axes."""
        build_shapes = {spec.name: spec.shape for spec in self.specs}
        build_shapes |= {name: sample.shape for name, sample in self.samples.items()}
        sizes = {(name, axis): build_shapes[name][axis] for name, axis in self.free_axes}
        return {axis: length if size is None else max(min_size, size) for axis, size in sizes.items()}

    def check_sizes(self, changed: Mapping[Axis, int]) -> str | None:
        """Return the error message of Keras for changed sizes, or `None` if the model runs."""
        failure = self.runs.find_failure({**self.base, **changed})
        return None if failure is None else failure.message

    def name_groups(self) -> dict[str, Group]:
        """Return the groups of all free axes by name, in the order of their first axes."""
        indexed_groups = [(min(map(self.free_axes.index, group.axes)), group) for group in self._find_groups()]
        groups = [(self.free_axes[first], group) for first, group in sorted(indexed_groups, key=lambda pair: pair[0])]
        batch_groups = [group for _, group in groups if any(axis == 0 for _, axis in group.axes)]
        largest = max(batch_groups, key=lambda group: len(group.axes), default=None)
        return {
            BATCH if group is largest else f"{name}_length" if axis == 1 else f"{name}_axis_{axis}": group
            for (name, axis), group in groups
        }

    def _find_groups(self) -> list[Group]:
        """Return the groups of all free axes, the batch first."""
        batch, other_axes = tuple(self.batch), [axis for axis in self.free_axes if axis not in self.batch]
        if batch and self.check_sizes({axis: self.base[axis] + 1 for axis in batch}) is None:
            return [Group(batch, 1, self.base[batch[0]] + 1), *find_groups(other_axes, self.base, self.check_sizes)]
        if not self.is_functional:  # its first axes need not be the batch
            return find_groups(self.free_axes, self.base, self.check_sizes)
        return [*([Group(batch, None, None)] if batch else []), *find_groups(other_axes, self.base, self.check_sizes)]

    def shapes(self, names: Mapping[Axis, str]) -> Shapes:
        """Return the shape of every input, with the names of dynamic axes and the base sizes of other axes."""
        return {
            spec.name: tuple(
                names.get((spec.name, axis), self.base.get((spec.name, axis), size or 0))
                for axis, size in enumerate(spec.shape)
            )
            for spec in self.specs
        }

    def choose_distinct_sizes(self, dynamic_groups: Mapping[str, Group]) -> dict[str, int]:
        """Return distinct sizes by name on which the model runs, else second sizes of the groups, else base sizes."""
        groups = list(dynamic_groups.values())
        pairs = [(axis, group.other_size) for group in groups for axis in group.axes]
        second_sizes = {axis: size for axis, size in pairs if size is not None}
        candidates = (choose_distinct_sizes(groups, self.base), second_sizes)
        sizes = next((sizes for sizes in candidates if self.check_sizes(sizes) is None), self.base)
        return {name: sizes[group.axes[0]] for name, group in dynamic_groups.items()}


def _fix_axes(axes: Axes, options: Options, samples: Arrays, runs: TrialRuns) -> Axes:
    """Return axes of which the requested and the untraceable ones are static, at the requested or sampled size."""
    if unknown := sorted(set(options.static_axes) - set(axes.base)):
        raise InputError(f"`static_axes` names {unknown}. The dynamic axes of this model are {list(axes.base)}.")
    reasons = {**dict.fromkeys(options.static_axes, REQUESTED_REASON), **options.untraceable_axes}
    if not reasons:
        return axes
    fixed_sizes: dict[Axis, int] = {}
    for symbol, reason in reasons.items():
        symbol_axes = [axis for axis, name in iterate_named_axes(axes.shapes) if name == symbol]
        sampled_size = next((samples[name].shape[axis] for name, axis in symbol_axes if name in samples), None)
        size = options.static_axes.get(symbol, sampled_size)
        if size is None:
            raise InputError(
                f"Axis `{symbol}` is dynamic in the model, but must be static in the file. {reason.removesuffix('.')}. "
                f"Choose the size: pass `sample_inputs=` (`--samples`), or `static_axes={{{symbol!r}: "
                f"{axes.base[symbol]}}}` (`--static {symbol}={axes.base[symbol]}`)."
            )
        fixed_sizes |= dict.fromkeys(symbol_axes, size)
    dynamic_names = [name for name in axes.base if name not in reasons]
    fixed_axes = Axes(
        shapes={
            name: tuple(fixed_sizes.get((name, axis), size) for axis, size in enumerate(shape))
            for name, shape in axes.shapes.items()
        },
        base={name: axes.base[name] for name in dynamic_names},
        distinct={name: axes.distinct[name] for name in dynamic_names},
        multiples={name: axes.multiples[name] for name in dynamic_names if name in axes.multiples},
        static={**axes.static, **reasons},
        fixed={**axes.fixed, **fixed_sizes},
    )
    if (failure := runs.find_failure(fixed_axes.get_axis_sizes(fixed_axes.base))) is not None:
        raise InputError(f"{failure.sentence}, with static axes {dict(options.static_axes)}.")
    return fixed_axes
