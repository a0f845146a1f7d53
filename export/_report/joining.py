"""Which layer a node belongs to whose name does not tell, and how layers are told apart where they share nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from .._graphs.walk import names_read
from .scopes import Path

if TYPE_CHECKING:
    import onnx

LAYOUT = ("Cast", "Constant", "Identity", "Reshape", "Shape", "Squeeze", "Transpose", "Unsqueeze")
Group = Path  # that of a layer; ("", name of a tensor) for other operators


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


def settled(wires: Wires, groups: Sequence[Group | None]) -> list[Group | None]:
    """Return a group for each node that has one, or joins what feeds or reads it.

    One without weights that only a single layer feeds joins that one; else one that only a single layer reads, as the
    sum before a normalization. A sum that several layers read stays without.
    """
    found = with_feeders(wires, groups, left=wires.weighty)
    for number, node in reversed(list(enumerate(wires.nodes))):
        if found[number] is None:
            reading = [found[each] for each in wires.readers[number]]
            if len(set(reading)) == 1 or (reading and not any(node.input)):  # a constant, which several may read
                found[number] = next((group for group in reading if group is not None), None)
    return with_feeders(wires, found)


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


def _is_layer(group: Group, parts: Collection[Group]) -> bool:
    return group not in parts and not is_other(group)


def is_other(group: Group) -> bool:
    return group[:1] == ("",)


def unshared(wires: Wires, groups: Sequence[Group | None]) -> list[Group | None]:
    """Return groups without what is only made of inputs, for several layers, in one that does more: masks, for example.

    What layers compute alike is in the file once, and is named after any of them.
    """
    prepares: list[bool] = []
    for feeders, weighty in zip(wires.feeders, wires.weighty, strict=True):
        prepares.append(not weighty and all(prepares[each] for each in feeders))
    does_more = {group for group, prepared in zip(groups, prepares, strict=True) if not prepared}
    found = list(groups)
    for number in reversed(range(len(groups))):
        if prepares[number] and found[number] in does_more:
            reading = {found[each] for each in wires.readers[number]} or {found[number]}
            found[number] = reading.pop() if len(reading) == 1 else None
    return found


def in_order(wires: Wires, groups: Sequence[Group], parts: Collection[Group]) -> list[Group]:
    """Return groups that do not go round in circles, as far as what has no weights can be moved.

    tf2onnx moves what lays out on, behind later layers, and it goes to these; of the rest, what an earlier layer reads
    goes to that.
    """
    place, found = places(wires, groups), list(groups)
    for number, node in enumerate(wires.nodes):
        feeding = [group for each in wires.feeders[number] if _is_layer(group := found[each], parts)]
        if node.op_type in LAYOUT and feeding and _is_layer(found[number], parts):
            found[number] = max(found[number], *feeding, key=place.__getitem__)
    last = {group: number for number, group in enumerate(groups)}
    for number in reversed(range(len(groups))):
        own = found[number]
        layers = [group for each in wires.readers[number] if _is_layer(group := found[each], parts)]
        if not layers or not _is_layer(own, parts) or wires.weighty[number]:
            continue
        earliest = min(layers, key=place.__getitem__)
        if place[earliest] < place[own] and number < last[earliest]:
            found[number] = earliest
    return found


def places(wires: Wires, groups: Sequence[Group]) -> dict[Group, int]:
    """Return where in a file each group works: the number of its last node with weights, or else of the middle one."""
    members: dict[Group, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    weighty = {group: [each for each in numbers if wires.weighty[each]] for group, numbers in members.items()}
    return {group: (weighty[group] or numbers[: len(numbers) // 2 + 1])[-1] for group, numbers in members.items()}


def apart(wires: Wires, groups: Sequence[Group | None]) -> list[Group]:
    """Return groups with one of its own for each set of nodes without a group that hang together."""
    found: list[Group] = []
    for number, group in enumerate(groups):
        if group is None:
            touched = {found[each] for each in wires.feeders[number] if is_other(found[each])}
            group = min(touched, default=("", wires.nodes[number].output[0]))
            found = [group if each in touched else each for each in found]
        found.append(group)
    return found
