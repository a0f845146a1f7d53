"""Find input axes that must have equal sizes, by running the model on trial sizes.

Whether a model runs answers yes or no, and that alone cannot tell two groups of five axes from the 125 other ways to
make two of ten without trying most of them. So every axis gets a size of its own, and what the library says of the two
sizes that do not fit is taken for a hint: these axes become one group, if with that the complaint is gone. It takes
about as many trials as there are axes. Only where nothing helpful is said, axes are tried alone, together, in pairs.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Axis = tuple[str, int]  # an input's name and the number of one of its axes
TiedAxes = tuple[Axis, ...]
CheckSizes = Callable[[Mapping[Axis, int]], str | None]  # message about sizes that differ from the base; None: fine

MAX_MULTIPLE = 32  # of sizes that must be multiples
MAX_PAIRED_TIES = 6
MAX_HINTS = 4  # that are followed for one failure


@dataclass(frozen=True)
class Group:
    """Axes that must have one size."""

    axes: TiedAxes
    multiple: (
        int | None
    )  # of which the size must be a multiple, as far as was seen; `None` if only the base is known to do
    other_size: int | None  # another size that does, while all other axes keep theirs


def find_groups(free: Sequence[Axis], base: Mapping[Axis, int], check_sizes: CheckSizes) -> list[Group]:
    """Return the groups of the free axes, with a `base` size for each on which the model runs."""
    blocks: list[TiedAxes] = [(axis,) for axis in free]
    stuck: list[TiedAxes] = []
    sizes, mentioned = _merge_until_model_runs(blocks, base, check_sizes, lambda size: 1)
    if mentioned is None:
        return [Group(block, 1, size) for block, size in sizes.items()]
    blocks = list(sizes)
    while blocks:  # in large steps, as for models that halve their input and double it again
        sizes, mentioned = _merge_until_model_runs(blocks, base, check_sizes, _find_largest_multiple)
        blocks = list(sizes)
        if mentioned is None:
            break
        held = mentioned or [block for block in blocks if _is_not_named(block, base, check_sizes)] or blocks
        stuck += held
        blocks = [block for block in blocks if block not in held]
    # the size 1 broadcasts, so an axis that must agree with another would seem not to
    lowest = 1 if len(free) == 1 else 2
    alone = [(block, _find_other_size(block, base, check_sizes, lowest)) for block in [*blocks, *stuck]]
    groups = [group for _, group in alone if group is not None]
    return groups + _join_dependent([block for block, group in alone if group is None], base, check_sizes)


def choose_distinct_sizes(groups: Sequence[Group], base: Mapping[Axis, int], start: int = 0) -> dict[Axis, int]:
    """Return a size for each axis of the groups that vary, another for each group and none of the base's."""
    varying = {group.axes: group.multiple for group in groups if group.multiple is not None}
    sizes = _assign_distinct_sizes(list(varying), base, lambda block: varying[block], start)
    return {axis: size for block, size in sizes.items() for axis in block}


def _find_largest_multiple(size: int) -> int:
    return max(step for step in _list_divisors(size) if step <= MAX_MULTIPLE)


def _list_divisors(size: int) -> list[int]:
    return [step for step in range(1, size + 1) if size % step == 0]


def _assign_distinct_sizes(
    blocks: Sequence[TiedAxes], base: Mapping[Axis, int], step_of: Callable[[TiedAxes], int], start: int = 0
) -> dict[TiedAxes, int]:
    taken = set(base.values())
    sizes = {}
    for index, block in enumerate(blocks, start):
        size, step = base[block[0]], step_of(block)
        odd = 2 if step == 1 else 1  # sizes that are neighbours are easily mistaken for each other
        sizes[block] = next(
            size for size in itertools.count(size + step * (1 + odd * index), step) if size not in taken
        )
        taken.add(sizes[block])
    return sizes


def _merge_until_model_runs(
    blocks: list[TiedAxes], base: Mapping[Axis, int], problem: CheckSizes, stride: Callable[[int], int]
) -> tuple[dict[TiedAxes, int], list[TiedAxes] | None]:
    """Merge blocks until the model runs while each has a size of its own.

    Returns:
        The blocks with their sizes; and those whose sizes the last message mentions, `None` if the model runs.
    """
    sizes = _assign_distinct_sizes(blocks, base, lambda block: stride(base[block[0]]))
    message = _check_tied_axes(problem, sizes)
    while message is not None:
        merge = _find_merge(sizes, message, base, problem)
        if merge is None:
            return sizes, [block for block, size in sizes.items() if size in _parse_integers(message)]
        sizes, message = merge
    return sizes, None


def _check_tied_axes(problem: CheckSizes, sizes: Mapping[TiedAxes, int]) -> str | None:
    return problem({axis: size for block, size in sizes.items() for axis in block})


def _find_merge(
    sizes: Mapping[TiedAxes, int], message: str, base: Mapping[Axis, int], problem: CheckSizes
) -> tuple[dict[TiedAxes, int], str | None] | None:
    """Merge two blocks to which the message hints, and return the new sizes with the message that then remains.

    A merge counts if the error disappears, moves to another operation or other sizes, or named no other conflict.
    """
    block_of = {size: block for block, size in sizes.items()}
    pairs = {hint: (block_of[hint.keep], block_of[hint.drop]) for hint in _find_hints(message, set(block_of))}
    # the model ran on the base
    joined = {hint: keep + drop for hint, (keep, drop) in pairs.items() if base[keep[0]] == base[drop[0]]}
    likely = [hint for hint in joined if hint.likely]
    # with two likely conflicts at once the message fits any pair: only a pair on which the model runs is sure
    runs = (hint for hint in likely if _check_tied_axes(problem, {joined[hint]: hint.keep}) is None)
    sure = next(runs, None) if len(likely) > 1 else None
    for hint in [sure] if sure else list(joined)[:MAX_HINTS]:
        merged = {block: size for block, size in sizes.items() if block not in pairs[hint]} | {joined[hint]: hint.keep}
        after = _check_tied_axes(problem, merged)
        only_conflict = hint.clear and after != message
        if hint is sure or after is None or only_conflict or hint.is_elsewhere(message, after):
            return merged, after
    return None


@dataclass(frozen=True)
class _Hint:
    """Two sizes that seem not to fit each other."""

    keep: int
    drop: int
    clear: bool = False  # whether nothing else in the message might not fit
    likely: bool = False  # whether the sizes stand at the same place of two shapes

    def is_elsewhere(self, before: str, after: str) -> bool:
        """Tell whether, since the two are one, it is another operation that fails, or on other sizes."""
        return _remove_digits(after) != _remove_digits(before) or self.keep not in _parse_integers(after)


def _find_hints(message: str, sizes: set[int]) -> list[_Hint]:
    """Return the pairs of sizes that may not fit each other according to a message, the likeliest first."""
    shapes = _parse_shapes(message)
    likely: list[tuple[int, ...]] = []
    possible: list[tuple[int, ...]] = []
    for first, second in itertools.combinations(shapes, 2):
        unequal = [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]
        if len(first) == len(second):
            likely += [pair for pair in unequal if sizes.issuperset(pair)]
        possible += itertools.product(sizes & {*first} - {*second}, sizes & {*second} - {*first})
    known = sorted(sizes & _parse_integers(message))
    if not possible and len(known) == 2 and not any({*known} <= {*shape} for shape in shapes):
        possible.append((known[0], known[1]))
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in (*likely, *possible))
    clear = len(pairs) == 1 and len([shape for shape in shapes if len(shape) > 1]) <= 2
    placed = {(min(pair), max(pair)) for pair in likely}
    return [_Hint(keep, drop, clear, (keep, drop) in placed) for keep, drop in pairs]


def _is_not_named(block: TiedAxes, base: Mapping[Axis, int], problem: CheckSizes) -> bool:
    """Return True if a block cannot change alone, and the message does not name its size."""
    size = base[block[0]] + _find_largest_multiple(base[block[0]])
    message = problem(dict.fromkeys(block, size))
    return message is not None and size not in _parse_integers(message)


def _parse_shapes(message: str) -> list[tuple[int, ...]]:
    lists = re.findall(r"[\[(]\s*(\d+(?:,\s*\d+)*),?\s*[\])]", message)
    return [tuple(map(int, shape.split(","))) for shape in lists]


def _parse_integers(message: str) -> set[int]:
    return {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.]*\w)", re.sub(r"\{\{.*?\}\}", "", message))}


def _remove_digits(message: str) -> str:
    return re.sub(r"\d+", "", message)


def _find_other_size(block: TiedAxes, base: Mapping[Axis, int], problem: CheckSizes, lowest: int = 2) -> Group | None:
    """Return the group of a block that can change while all other axes stay, `None` if it cannot."""
    sizes = {axis: base[axis] for axis in block}
    smallest = min(sizes.values())
    decrease = [-1] if smallest > lowest else []  # for the largest size that will do
    for change in (*_list_divisors(smallest), *decrease):
        if problem({axis: size + change for axis, size in sizes.items()}) is None:
            return Group(block, max(change, 1), sizes[block[0]] + change)
    return None


def _join_dependent(blocks: list[TiedAxes], base: Mapping[Axis, int], problem: CheckSizes) -> list[Group]:
    """Return the groups of blocks none of which can change alone, and about which nothing helpful is said."""
    rest, every = _find_joint_group(blocks, base, problem)
    groups = []
    for pair in itertools.combinations(rest, 2) if len(rest) <= MAX_PAIRED_TIES else ():
        one_group = every is not None and len(rest) <= 3  # none of which is free: there is no way to make two groups
        if not one_group and set(pair) <= set(rest) and (group := _change_together(pair, base, problem)) is not None:
            groups.append(group)
            rest = [block for block in rest if block not in pair]
    if every is not None and rest:
        groups.append(Group(tuple(axis for block in rest for axis in block), every.multiple, every.other_size))
    in_groups = {axis for group in groups for axis in group.axes}
    return groups + [Group(block, None, None) for block in blocks if not in_groups.issuperset(block)]


def _find_joint_group(
    blocks: list[TiedAxes], base: Mapping[Axis, int], problem: CheckSizes
) -> tuple[list[TiedAxes], Group | None]:
    """Return the blocks, or all but one, that can change together, with their common group; else all of them."""
    for left_out in (None, *blocks):
        rest = [block for block in blocks if block != left_out]
        if len(rest) > 1 and (every := _change_together(rest, base, problem)) is not None:
            return rest, every
    return blocks, None


def _change_together(blocks: Sequence[TiedAxes], base: Mapping[Axis, int], problem: CheckSizes) -> Group | None:
    return _find_other_size(tuple(axis for block in blocks for axis in block), base, problem)
