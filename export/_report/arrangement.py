"""Where the boxes of a graph go: rows by the longest path, order by what is above and below, edges around boxes.

An edge that passes rows has a place of its own in each, so that it runs between boxes; edges from one box share it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Node = Hashable
SWEEPS, SHIFTS = 12, 240
WORK = 40_000  # places that are shifted, in all sweeps
GAP = 22.0  # between boxes of a row
LANE = 10.0  # the width of an edge that passes a row


@dataclass(frozen=True)
class Bend:
    """The place in a row of the edges from a box that pass it."""

    source: Node
    row: int


@dataclass(frozen=True)
class Arrangement:
    """Rows of boxes and bends from left to right, the middle of each, and the steps of edges from row to row.

    Attributes:
        rows: What is in each row.
        middles: Where the middle of each is; the leftmost edge of all is at 0.
        steps: What is joined: boxes and bends of a row with such of the next.
        backward: Edges that go upwards or stay in a row: there is a circle.
        width: Of all rows.
    """

    rows: list[list[Node]]
    middles: dict[Node, float]
    steps: list[tuple[Node, Node]]
    backward: list[tuple[Node, Node]]
    width: float


def arranged(widths: Mapping[Node, float], edges: Iterable[tuple[Node, Node]]) -> Arrangement:
    """Return where boxes go.

    Args:
        widths: Of the boxes, in the order in which they come.
        edges: From box to box.
    """
    edges = list(dict.fromkeys(edges))
    place = {node: number for number, node in enumerate(_in_order(list(widths), edges))}
    forward = [(a, b) for a, b in edges if place[a] < place[b]]
    row = _rows(place, forward)
    steps = _steps(row, forward)
    rows: list[list[Node]] = [[] for _ in range(max(row.values(), default=-1) + 1)]
    for node in (*place, *dict.fromkeys(node for step in steps for node in step if isinstance(node, Bend))):
        rows[node.row if isinstance(node, Bend) else row[node]].append(node)
    above: dict[Node, list[Node]] = {}
    below: dict[Node, list[Node]] = {}
    for a, b in steps:
        below.setdefault(a, []).append(b)
        above.setdefault(b, []).append(a)
    _order(rows, above, below)
    middles = _middles(rows, above, below, widths)
    left = min((middles[node] - _width(node, widths) / 2 for node in middles), default=0.0)
    right = max((middles[node] + _width(node, widths) / 2 for node in middles), default=0.0)
    backward = [(a, b) for a, b in edges if place[a] >= place[b] and a != b]
    return Arrangement(rows, {node: x - left for node, x in middles.items()}, steps, backward, right - left)


def _in_order(nodes: Sequence[Node], edges: Sequence[tuple[Node, Node]]) -> list[Node]:
    """Return nodes so that each comes after what feeds it; in a circle, the first that is left begins."""
    waits: dict[Node, set[Node]] = {node: set() for node in nodes}
    for a, b in edges:
        if a != b:
            waits[b].add(a)
    found: dict[Node, None] = {}
    while len(found) < len(nodes):
        left = [node for node in nodes if node not in found]
        ready = [node for node in left if waits[node] <= found.keys()]
        found |= dict.fromkeys(ready or left[:1])
    return list(found)


def _rows(place: Mapping[Node, int], edges: Sequence[tuple[Node, Node]]) -> dict[Node, int]:
    """Return the row of each node: one below the lowest that feeds it; what nothing feeds is right above its reader."""
    row: dict[Node, int] = {}
    feeds: dict[Node, list[Node]] = {}
    reads: dict[Node, list[Node]] = {}
    for a, b in edges:
        feeds.setdefault(b, []).append(a)
        reads.setdefault(a, []).append(b)
    for node in place:
        row[node] = max((row[each] + 1 for each in feeds.get(node, ())), default=0)
    for node in reversed(list(place)):
        if node in reads and all(row[each] == 0 and len(reads[each]) == 1 for each in feeds.get(node, ())):
            row[node] = max(row[node], min(row[each] for each in reads[node]) - 1)
    return row


def _steps(row: Mapping[Node, int], edges: Iterable[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
    steps: dict[tuple[Node, Node], None] = {}
    for a, b in edges:
        way = [a, *(Bend(a, between) for between in range(row[a] + 1, row[b])), b]
        steps |= dict.fromkeys(pairwise(way))
    return list(steps)


def _order(rows: list[list[Node]], above: Mapping[Node, list[Node]], below: Mapping[Node, list[Node]]) -> None:
    """Order each row by the mean place of what its nodes are joined with, up and down in turns."""
    for sweep in range(SWEEPS):
        beside, over = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        place: dict[Node, float] = {}
        for row in over:
            own = {node: (number + 0.5) / len(row) for number, node in enumerate(row)}
            means = {node: _mean([place[each] for each in beside.get(node, ())], own[node]) for node in row}
            row.sort(key=means.__getitem__)
            place |= {node: (number + 0.5) / len(row) for number, node in enumerate(row)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _middles(
    rows: Sequence[Sequence[Node]],
    above: Mapping[Node, list[Node]],
    below: Mapping[Node, list[Node]],
    widths: Mapping[Node, float],
) -> dict[Node, float]:
    """Return the middle of each node: near those of its neighbours, in order, without overlap.

    What is joined to one thing alone, as in a chain, follows it more than what is joined to many; an edge that passes
    rows is to be straight above all.
    """
    joined: dict[Node, list[tuple[Node, float]]] = {}
    for a, others in below.items():
        for b in others:
            pull = 8.0 if isinstance(a, Bend) and isinstance(b, Bend) else 0.5
            if not isinstance(a, Bend) and not isinstance(b, Bend):
                pull = 8.0 / (len(others) + len(above[b]))
            joined.setdefault(a, []).append((b, pull))
            joined.setdefault(b, []).append((a, pull))
    middles = {node: 0.0 for row in rows for node in row}
    for sweep in range(max(2 * SWEEPS, min(SHIFTS, WORK // max(1, len(middles))))):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            pulls = [sum(pull for _, pull in joined.get(node, ())) for node in row]
            wanted = [
                sum(middles[each] * pull for each, pull in joined.get(node, ())) / total if total else middles[node]
                for node, total in zip(row, pulls, strict=True)
            ]
            middles |= dict(zip(row, _apart(row, wanted, pulls, widths), strict=True))
    return middles


def _apart(
    row: Sequence[Node], wanted: Sequence[float], pulls: Sequence[float], widths: Mapping[Node, float]
) -> list[float]:
    """Return the places nearest to those that are wanted, in weighted least squares, with room for what is in a row."""
    offsets, room = [], 0.0
    for number, node in enumerate(row):
        half = _width(node, widths) / 2
        room += half + (GAP if number else 0.0)
        offsets.append(room)
        room += half
    blocks: list[tuple[float, float, int]] = []  # weighted sum, weight and number of what stands as close as it can
    for want, pull, offset in zip(wanted, pulls, offsets, strict=True):
        weight = pull or 0.1
        total, count = (want - offset) * weight, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / weight:
            more = blocks.pop()
            total, weight, count = total + more[0], weight + more[1], count + more[2]
        blocks.append((total, weight, count))
    starts = [total / weight for total, weight, count in blocks for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _width(node: Node, widths: Mapping[Node, float]) -> float:
    return LANE if isinstance(node, Bend) else widths[node]
