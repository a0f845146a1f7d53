"""The assignment of nodes without a layer's name to the layers that feed or read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._graphs.walk import names_read
from .scopes import Path

if TYPE_CHECKING:
    import onnx

Group = Path  # path of a layer, or `REST` for nodes without one
REST: Group = ("",)  # no layer has an empty scope


class Wires:
    """The nodes of a graph by their numbers, and how they hang together.

    Attributes:
        nodes: The nodes.
        weighty: Whether each is the first to read weights.
        feeders: The numbers of the nodes that each reads, in bodies and branches too.
        readers: The numbers of the nodes that read each.
    """

    def __init__(self, nodes: Sequence[onnx.NodeProto], weighty: Sequence[bool]) -> None:
        """Read which node feeds which."""
        self.nodes, self.weighty = nodes, weighty
        self.feeders: list[list[int]] = []
        self.readers: list[list[int]] = [[] for _ in nodes]
        makers: dict[str, int] = {}
        for number, node in enumerate(nodes):
            self.feeders.append(sorted({makers[name] for name in names_read(node) if name in makers}))
            for feeder in self.feeders[number]:
                self.readers[feeder].append(number)
            makers |= dict.fromkeys(node.output, number)


def settled(wires: Wires, groups: Sequence[Group | None]) -> list[Group]:
    """Return the groups with those of the nodes without one: that of their only feeder or reader, or `REST`.

    One without weights that only a single layer feeds joins that one; else one that only a single layer reads, as the
    sum before a normalization. A sum that several layers read stays without.
    """
    found = with_feeders(wires, groups, left=wires.weighty)
    for number, node in reversed(list(enumerate(wires.nodes))):
        if found[number] is None:
            reading = [found[each] for each in wires.readers[number]]
            if len(set(reading)) == 1 or (reading and not any(node.input)):  # a constant, which several may read
                found[number] = next((group for group in reading if group is not None), None)
    return [REST if group is None else group for group in with_feeders(wires, found)]


def with_feeders(wires: Wires, groups: Sequence[Group | None], left: Sequence[bool] = ()) -> list[Group | None]:
    """Return groups with that of the one layer that feeds it for each node without.

    Args:
        wires: The nodes.
        groups: Their groups, or None.
        left: Which nodes are left as they are, as are then those that something without a group feeds too.
    """
    found = list(groups)
    for number, group in enumerate(groups):
        feeding = {found[each] for each in wires.feeders[number]} - (set() if left else {None})
        if group is None and len(feeding) == 1 and not (left and left[number]):
            found[number] = feeding.pop()
    return found


def places(wires: Wires, groups: Sequence[Group]) -> dict[Group, int]:
    """Return where in a file each group works: the number of its last node with weights, or else of the middle one."""
    members: dict[Group, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    weighty = {group: [each for each in numbers if wires.weighty[each]] for group, numbers in members.items()}
    return {group: (weighty[group] or numbers[: len(numbers) // 2 + 1])[-1] for group, numbers in members.items()}
