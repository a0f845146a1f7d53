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
Block = tuple[Axis, ...]
Problem = Callable[[Mapping[Axis, int]], str | None]  # message about sizes that differ from the base; None: fine

LARGEST_STEP = 32  # of sizes that must be multiples
MOST_IN_PAIRS = 6
MOST_HINTS = 4  # that are followed for one failure


@dataclass(frozen=True)
class Group:
    """Axes that must have one size."""

    axes: Block
    step: int | None  # of which the size must be a multiple, as far as was seen; `None` if only the base is known to do
    other: int | None  # another size that does, while all other axes keep theirs


def find_groups(free: Sequence[Axis], base: Mapping[Axis, int], problem: Problem) -> list[Group]:
    """Return the groups of the free axes, with a `base` size for each on which the model runs."""
    blocks: list[Block] = [(axis,) for axis in free]
    stuck: list[Block] = []
    sizes, mentioned = _told_apart(blocks, base, problem, lambda size: 1)
    if mentioned is None:
        return [Group(block, 1, size) for block, size in sizes.items()]
    blocks = list(sizes)
    while blocks:  # in large steps, as for models that halve their input and double it again
        sizes, mentioned = _told_apart(blocks, base, problem, _stride)
        blocks = list(sizes)
        if mentioned is None:
            break
        held = mentioned or [block for block in blocks if _is_not_named(block, base, problem)] or blocks
        stuck += held
        blocks = [block for block in blocks if block not in held]
    # the size 1 broadcasts, so an axis that must agree with another would seem not to
    lowest = 1 if len(free) == 1 else 2
    alone = [(block, _moved(block, base, problem, lowest)) for block in [*blocks, *stuck]]
    groups = [group for _, group in alone if group is not None]
    return groups + _joined([block for block, group in alone if group is None], base, problem)


def apart_sizes(groups: Sequence[Group], base: Mapping[Axis, int], start: int = 0) -> dict[Axis, int]:
    """Return a size for each axis of the groups that vary, another for each group and none of the base's."""
    varying = {group.axes: group.step for group in groups if group.step is not None}
    sizes = _distinct(list(varying), base, lambda block: varying[block], start)
    return {axis: size for block, size in sizes.items() for axis in block}


def _stride(size: int) -> int:
    return max(step for step in _divisors(size) if step <= LARGEST_STEP)


def _divisors(size: int) -> list[int]:
    return [step for step in range(1, size + 1) if size % step == 0]


def _distinct(
    blocks: Sequence[Block], base: Mapping[Axis, int], step_of: Callable[[Block], int], start: int = 0
) -> dict[Block, int]:
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


def _told_apart(
    blocks: list[Block], base: Mapping[Axis, int], problem: Problem, stride: Callable[[int], int]
) -> tuple[dict[Block, int], list[Block] | None]:
    """Merge blocks until the model runs while each has a size of its own.

    Returns:
        The blocks with their sizes; and those whose sizes the last message mentions, `None` if the model runs.
    """
    sizes = _distinct(blocks, base, lambda block: stride(base[block[0]]))
    message = _message(problem, sizes)
    while message is not None:
        merge = _next_merge(sizes, message, base, problem)
        if merge is None:
            return sizes, [block for block, size in sizes.items() if size in _numbers(message)]
        sizes, message = merge
    return sizes, None


def _message(problem: Problem, sizes: Mapping[Block, int]) -> str | None:
    return problem({axis: size for block, size in sizes.items() for axis in block})


def _next_merge(
    sizes: Mapping[Block, int], message: str, base: Mapping[Axis, int], problem: Problem
) -> tuple[dict[Block, int], str | None] | None:
    """Merge two blocks to which the message hints, and return the new sizes with the message that then remains.

    A merge counts if the error disappears, moves to another operation or other sizes, or named no other conflict.
    """
    block_of = {size: block for block, size in sizes.items()}
    pairs = {hint: (block_of[hint.keep], block_of[hint.drop]) for hint in _hints(message, set(block_of))}
    # the model ran on the base
    joined = {hint: keep + drop for hint, (keep, drop) in pairs.items() if base[keep[0]] == base[drop[0]]}
    likely = [hint for hint in joined if hint.likely]
    # with two likely conflicts at once the message fits any pair: only a pair on which the model runs is sure
    runs = (hint for hint in likely if _message(problem, {joined[hint]: hint.keep}) is None)
    sure = next(runs, None) if len(likely) > 1 else None
    for hint in [sure] if sure else list(joined)[:MOST_HINTS]:
        merged = {block: size for block, size in sizes.items() if block not in pairs[hint]} | {joined[hint]: hint.keep}
        after = _message(problem, merged)
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
        return _wording(after) != _wording(before) or self.keep not in _numbers(after)


def _hints(message: str, sizes: set[int]) -> list[_Hint]:
    """Return the pairs of sizes that may not fit each other according to a message, the likeliest first."""
    shapes = _shapes(message)
    likely: list[tuple[int, ...]] = []
    possible: list[tuple[int, ...]] = []
    for first, second in itertools.combinations(shapes, 2):
        unequal = [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]
        if len(first) == len(second):
            likely += [pair for pair in unequal if sizes.issuperset(pair)]
        possible += itertools.product(sizes & {*first} - {*second}, sizes & {*second} - {*first})
    known = sorted(sizes & _numbers(message))
    if not possible and len(known) == 2 and not any({*known} <= {*shape} for shape in shapes):
        possible.append((known[0], known[1]))
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in (*likely, *possible))
    clear = len(pairs) == 1 and len([shape for shape in shapes if len(shape) > 1]) <= 2
    placed = {(min(pair), max(pair)) for pair in likely}
    return [_Hint(keep, drop, clear, (keep, drop) in placed) for keep, drop in pairs]


def _is_not_named(block: Block, base: Mapping[Axis, int], problem: Problem) -> bool:
    """Return True if a block cannot change alone, and the message does not name its size."""
    size = base[block[0]] + _stride(base[block[0]])
    message = problem(dict.fromkeys(block, size))
    return message is not None and size not in _numbers(message)


def _shapes(message: str) -> list[tuple[int, ...]]:
    lists = re.findall(r"[\[(]\s*(\d+(?:,\s*\d+)*),?\s*[\])]", message)
    return [tuple(map(int, shape.split(","))) for shape in lists]


def _numbers(message: str) -> set[int]:
    return {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.]*\w)", re.sub(r"\{\{.*?\}\}", "", message))}


def _wording(message: str) -> str:
    return re.sub(r"\d+", "", message)


def _moved(block: Block, base: Mapping[Axis, int], problem: Problem, lowest: int = 2) -> Group | None:
    """Return the group of a block that can change while all other axes stay, `None` if it cannot."""
    sizes = {axis: base[axis] for axis in block}
    smallest = min(sizes.values())
    decrease = [-1] if smallest > lowest else []  # for the largest size that will do
    for change in (*_divisors(smallest), *decrease):
        if problem({axis: size + change for axis, size in sizes.items()}) is None:
            return Group(block, max(change, 1), sizes[block[0]] + change)
    return None


def _joined(blocks: list[Block], base: Mapping[Axis, int], problem: Problem) -> list[Group]:
    """Return the groups of blocks none of which can change alone, and about which nothing helpful is said."""
    rest, every = _all_that_change(blocks, base, problem)
    groups = []
    for pair in itertools.combinations(rest, 2) if len(rest) <= MOST_IN_PAIRS else ():
        one_group = every is not None and len(rest) <= 3  # none of which is free: there is no way to make two groups
        if not one_group and set(pair) <= set(rest) and (group := _together(pair, base, problem)) is not None:
            groups.append(group)
            rest = [block for block in rest if block not in pair]
    if every is not None and rest:
        groups.append(Group(tuple(axis for block in rest for axis in block), every.step, every.other))
    in_groups = {axis for group in groups for axis in group.axes}
    return groups + [Group(block, None, None) for block in blocks if not in_groups.issuperset(block)]


def _all_that_change(
    blocks: list[Block], base: Mapping[Axis, int], problem: Problem
) -> tuple[list[Block], Group | None]:
    """Return the blocks, or all but one, that can change together, with their common group; else all of them."""
    for left_out in (None, *blocks):
        rest = [block for block in blocks if block != left_out]
        if len(rest) > 1 and (every := _together(rest, base, problem)) is not None:
            return rest, every
    return blocks, None


def _together(blocks: Sequence[Block], base: Mapping[Axis, int], problem: Problem) -> Group | None:
    return _moved(tuple(axis for block in blocks for axis in block), base, problem)
