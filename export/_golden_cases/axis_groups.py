"""Search for input axes that must have equal sizes (tied axes), by runs of the model on trial sizes.

A run returns one bit: the model accepts the sizes or not. With ten axes, a run for each of the 126 ways to form two
groups of five would be needed. So every axis gets a distinct size, and the two sizes that an error message names are
taken as a hint: their axes are tied if the message changes once both have one size. This takes about one run per axis.

1. Sizes base + 1, base + 3, base + 5, ...: neighbouring sizes are easily confused in a message.
2. If that fails, steps of the largest divisor of the base size up to MAX_MULTIPLE, for a model that halves its input
   several times. Axes that the last message names are set aside, and the others are tried without them.
3. Each group is changed alone, by every divisor of its base size in ascending order: the first change on which the
   model runs is the multiple. Groups that cannot change alone are changed together, all or all but one, then in pairs.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Axis = tuple[str, int]  # name of an input, index of an axis
TiedAxes = tuple[Axis, ...]
Sizes = Mapping[Axis, int]
# Takes sizes that differ from the base; returns the error message of the model, or `None` if the model runs.
CheckSizes = Callable[[Sizes], str | None]

# Five halvings, as in most image networks. A larger step needs larger inputs in every golden case.
MAX_MULTIPLE = 32
MAX_PAIRED_TIES, MAX_HINTS = 6, 4  # each pair and each hint takes a run


@dataclass(frozen=True)
class Group:
    """Axes that must have one size."""

    axes: TiedAxes
    multiple: int | None  # divides every size on which the model ran; `None` if it ran on the base size only
    other_size: int | None  # second size on which the model runs while all other axes have their base sizes


def find_groups(free_axes: Sequence[Axis], base: Sizes, check_sizes: CheckSizes) -> list[Group]:
    """Return the groups of `free_axes`; the model runs on their `base` sizes."""
    tied_axes: list[TiedAxes] = [(axis,) for axis in free_axes]
    dependent_axes: list[TiedAxes] = []
    sizes, named_axes = _merge_until_model_runs(tied_axes, base, check_sizes, lambda size: 1)
    if named_axes is None:
        return [Group(axes, 1, size) for axes, size in sizes.items()]
    tied_axes = list(sizes)
    while tied_axes:
        sizes, named_axes = _merge_until_model_runs(tied_axes, base, check_sizes, _find_largest_multiple)
        tied_axes = list(sizes)
        if named_axes is None:
            break
        conflicts = named_axes or [axes for axes in tied_axes if _is_not_named(axes, base, check_sizes)] or tied_axes
        dependent_axes += conflicts
        tied_axes = [axes for axes in tied_axes if axes not in conflicts]
    # Size 1 broadcasts, so that an axis tied to another one would seem to be free.
    min_size = 1 if len(free_axes) == 1 else 2
    single = [(axes, _find_other_size(axes, base, check_sizes, min_size)) for axes in [*tied_axes, *dependent_axes]]
    groups = [group for _, group in single if group is not None]
    return groups + _join_dependent([axes for axes, group in single if group is None], base, check_sizes)


def choose_distinct_sizes(groups: Sequence[Group], base: Sizes, start: int = 0) -> dict[Axis, int]:
    """Return a distinct size for each group that varies, by axis; no size is one of the `base` sizes."""
    multiples = {group.axes: group.multiple for group in groups if group.multiple is not None}
    sizes = _assign_distinct_sizes(list(multiples), base, lambda axes: multiples[axes], start)
    return {axis: size for axes, size in sizes.items() for axis in axes}


def _find_largest_multiple(size: int) -> int:
    return max(divisor for divisor in _list_divisors(size) if divisor <= MAX_MULTIPLE)


def _list_divisors(size: int) -> list[int]:
    return [divisor for divisor in range(1, size + 1) if size % divisor == 0]


def _assign_distinct_sizes(
    tied_axes: Sequence[TiedAxes], base: Sizes, get_multiple: Callable[[TiedAxes], int], start: int = 0
) -> dict[TiedAxes, int]:
    used_sizes = set(base.values())
    sizes = {}
    for index, axes in enumerate(tied_axes, start):
        multiple = get_multiple(axes)
        gap = 2 if multiple == 1 else 1
        candidates = itertools.count(base[axes[0]] + multiple * (1 + gap * index), multiple)
        sizes[axes] = next(size for size in candidates if size not in used_sizes)
        used_sizes.add(sizes[axes])
    return sizes


def _merge_until_model_runs(
    tied_axes: list[TiedAxes], base: Sizes, check_sizes: CheckSizes, get_step: Callable[[int], int]
) -> tuple[dict[TiedAxes, int], list[TiedAxes] | None]:
    """Merge tied axes until the model runs; return their sizes, and the axes that the last message names, if any."""
    sizes = _assign_distinct_sizes(tied_axes, base, lambda axes: get_step(base[axes[0]]))
    message = _check_tied_axes(check_sizes, sizes)
    while message is not None:
        merge = _find_merge(sizes, message, base, check_sizes)
        if merge is None:
            return sizes, [axes for axes, size in sizes.items() if size in _parse_integers(message)]
        sizes, message = merge
    return sizes, None


def _check_tied_axes(check_sizes: CheckSizes, sizes: Mapping[TiedAxes, int]) -> str | None:
    return check_sizes({axis: size for axes, size in sizes.items() for axis in axes})


def _find_merge(
    sizes: Mapping[TiedAxes, int], message: str, base: Sizes, check_sizes: CheckSizes
) -> tuple[dict[TiedAxes, int], str | None] | None:
    """Merge two tied axes by a hint of the message, and return the new sizes with their message."""
    # A merge is accepted if the error disappears, if another operation fails or on other sizes, or if the message names
    # no other pair and changes. In 41 of 151 models drawn at random, hints without such a check tied free axes.
    size_to_axes = {size: axes for axes, size in sizes.items()}
    hints = _find_hints(message, set(size_to_axes))
    pairs = {hint: (size_to_axes[hint.size], size_to_axes[hint.other_size]) for hint in hints}
    # The model ran on the base sizes, so axes with different base sizes are not tied.
    merged_axes = {hint: axes + other for hint, (axes, other) in pairs.items() if base[axes[0]] == base[other[0]]}
    aligned_hints = [hint for hint in merged_axes if hint.is_aligned]
    # With two conflicts at once, one message fits several pairs. Only a pair on which the model runs is certain.
    fixes = (hint for hint in aligned_hints if _check_tied_axes(check_sizes, {merged_axes[hint]: hint.size}) is None)
    certain_hint = next(fixes, None) if len(aligned_hints) > 1 else None
    for hint in [certain_hint] if certain_hint else list(merged_axes)[:MAX_HINTS]:
        new_sizes = {axes: size for axes, size in sizes.items() if axes not in pairs[hint]}
        new_sizes |= {merged_axes[hint]: hint.size}
        new_message = _check_tied_axes(check_sizes, new_sizes)
        is_only_conflict = hint.is_only_pair and new_message != message
        if hint is certain_hint or new_message is None or is_only_conflict or hint.is_resolved(message, new_message):
            return new_sizes, new_message
    return None


@dataclass(frozen=True)
class _Hint:
    """Two sizes that conflict according to an error message."""

    size: int
    other_size: int
    is_only_pair: bool = False  # the message names no other pair
    is_aligned: bool = False  # the sizes have the same index in two shapes of equal rank

    def is_resolved(self, message: str, new_message: str) -> bool:
        """Return True if, with equal sizes, another operation fails, or the same operation on other sizes."""
        is_other_operation = _remove_digits(new_message) != _remove_digits(message)
        return is_other_operation or self.size not in _parse_integers(new_message)


def _find_hints(message: str, sizes: set[int]) -> list[_Hint]:
    """Return pairs of sizes that a message names in different shapes, pairs with the same index first."""
    shapes = _parse_shapes(message)
    aligned_sizes: list[tuple[int, ...]] = []
    possible_pairs: list[tuple[int, ...]] = []
    for first, second in itertools.combinations(shapes, 2):
        unequal_pairs = [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]
        if len(first) == len(second):
            aligned_sizes += [pair for pair in unequal_pairs if sizes.issuperset(pair)]
        possible_pairs += itertools.product(sizes & {*first} - {*second}, sizes & {*second} - {*first})
    named_sizes = sorted(sizes & _parse_integers(message))
    if not possible_pairs and len(named_sizes) == 2 and not any({*named_sizes} <= {*shape} for shape in shapes):
        possible_pairs.append((named_sizes[0], named_sizes[1]))
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in (*aligned_sizes, *possible_pairs))
    is_only_pair = len(pairs) == 1 and len([shape for shape in shapes if len(shape) > 1]) <= 2
    aligned_pairs = {(min(pair), max(pair)) for pair in aligned_sizes}
    return [_Hint(size, other_size, is_only_pair, (size, other_size) in aligned_pairs) for size, other_size in pairs]


def _is_not_named(axes: TiedAxes, base: Sizes, check_sizes: CheckSizes) -> bool:
    """Return True if tied axes cannot change alone, and the message does not name their size."""
    size = base[axes[0]] + _find_largest_multiple(base[axes[0]])
    message = check_sizes(dict.fromkeys(axes, size))
    return message is not None and size not in _parse_integers(message)


def _parse_shapes(message: str) -> list[tuple[int, ...]]:
    lists = re.findall(r"[\[(]\s*(\d+(?:,\s*\d+)*),?\s*[\])]", message)
    return [tuple(map(int, shape.split(","))) for shape in lists]


def _parse_integers(message: str) -> set[int]:
    return {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.]*\w)", re.sub(r"\{\{.*?\}\}", "", message))}


def _remove_digits(message: str) -> str:
    return re.sub(r"\d+", "", message)


def _find_other_size(axes: TiedAxes, base: Sizes, check_sizes: CheckSizes, min_size: int = 2) -> Group | None:
    """Return the group of tied axes if they can change while all other axes keep their sizes, else `None`."""
    sizes = {axis: base[axis] for axis in axes}
    smallest = min(sizes.values())
    decrease = [-1] if smallest > min_size else []  # the base may be the largest size that the model accepts
    for change in (*_list_divisors(smallest), *decrease):
        if check_sizes({axis: size + change for axis, size in sizes.items()}) is None:
            return Group(axes, max(change, 1), sizes[axes[0]] + change)
    return None


def _join_dependent(tied_axes: list[TiedAxes], base: Sizes, check_sizes: CheckSizes) -> list[Group]:
    """Return groups of tied axes that cannot change alone, without hints of messages."""
    ties, union = _find_joint_group(tied_axes, base, check_sizes)
    groups = []
    for pair in itertools.combinations(ties, 2) if len(ties) <= MAX_PAIRED_TIES else ():
        is_one_group = union is not None and len(ties) <= 3  # two groups need four, since none can change alone
        if not is_one_group and set(pair) <= set(ties) and (group := _change_together(pair, base, check_sizes)):
            groups.append(group)
            ties = [axes for axes in ties if axes not in pair]
    if union is not None and ties:
        groups.append(Group(tuple(axis for axes in ties for axis in axes), union.multiple, union.other_size))
    in_groups = {axis for group in groups for axis in group.axes}
    return groups + [Group(axes, None, None) for axes in tied_axes if not in_groups.issuperset(axes)]


def _find_joint_group(
    tied_axes: list[TiedAxes], base: Sizes, check_sizes: CheckSizes
) -> tuple[list[TiedAxes], Group | None]:
    """Return the tied axes, all or all but one, that can change together, with their joint group; else all axes."""
    for excluded_axes in (None, *tied_axes):
        ties = [axes for axes in tied_axes if axes != excluded_axes]
        if len(ties) > 1 and (union := _change_together(ties, base, check_sizes)) is not None:
            return ties, union
    return tied_axes, None


def _change_together(tied_axes: Sequence[TiedAxes], base: Sizes, check_sizes: CheckSizes) -> Group | None:
    return _find_other_size(tuple(axis for axes in tied_axes for axis in axes), base, check_sizes)
