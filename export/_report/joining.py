"""Which layer a node belongs to whose name does not tell, and how layers are told apart where they share nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from .._graphs.walk import names_read
from .constants import Held
from .scopes import MODEL, Path

if TYPE_CHECKING:
    import onnx

LAYOUT = ("Cast", "Constant", "Identity", "Reshape", "Shape", "Squeeze", "Transpose", "Unsqueeze")
Group = Path  # that of a layer; ("", name of a tensor) for other operators


def settled(
    nodes: Sequence[onnx.NodeProto], groups: Sequence[Group | None], held: Sequence[Sequence[Held]]
) -> list[Group | None]:
    """Return a group for each node that has one, or joins what feeds or reads it.

    One without weights that only a single layer feeds joins that one; else one that only a single layer reads, as the
    sum before a normalization. A sum that several layers read stays without.
    """
    weighty = [any(each.count for each in constants) for constants in held]
    found = with_feeders(nodes, groups, left=weighty)
    readers = _readers(nodes)
    for number, node in reversed(list(enumerate(nodes))):
        if found[number] is None:
            reading = [found[each] for each in _reading(node, readers)]
            if len(set(reading)) == 1 or (reading and not any(node.input)):  # a constant, which several may read
                found[number] = next((group for group in reading if group is not None), None)
    return with_feeders(nodes, found)


def with_feeders(
    nodes: Sequence[onnx.NodeProto], groups: Sequence[Group | None], left: Sequence[bool] = ()
) -> list[Group | None]:
    """Return groups with that of the one layer that feeds it for each node without.

    Args:
        nodes: The nodes.
        groups: Their groups, or None.
        left: Which nodes are left as they are, as are then those that something without a group feeds too.
    """
    found: list[Group | None] = []
    maker: dict[str, int] = {}
    for number, (node, group) in enumerate(zip(nodes, groups, strict=True)):
        feeding = {found[maker[name]] for name in names_read(node) if name in maker} - (set() if left else {None})
        is_left = group is not None or len(feeding) != 1 or (left and left[number])
        found.append(group if is_left else feeding.pop())
        maker |= dict.fromkeys(node.output, number)
    return found


def _laid_out(
    nodes: Sequence[onnx.NodeProto], groups: Sequence[Group], place: Mapping[Group, int], parts: Collection[Group]
) -> list[Group]:
    found = list(groups)
    makers: dict[str, Group] = {}
    for number, node in enumerate(nodes):
        feeding = [makers[name] for name in node.input if name in makers and _is_layer(makers[name], parts)]
        if node.op_type in LAYOUT and feeding and _is_layer(found[number], parts):
            latest = max(feeding, key=place.__getitem__)
            if place[latest] > place[found[number]]:
                found[number] = latest
        makers |= dict.fromkeys(node.output, found[number])
    return found


def _is_layer(group: Group, parts: Collection[Group]) -> bool:
    return group not in parts and not is_other(group)


def is_other(group: Group) -> bool:
    return group[:1] == ("",)


def _readers(nodes: Sequence[onnx.NodeProto]) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for name in dict.fromkeys(names_read(node)):
            readers.setdefault(name, []).append(number)
    return readers


def _reading(node: onnx.NodeProto, readers: Mapping[str, list[int]]) -> list[int]:
    return sorted(number for name in node.output for number in readers.get(name, ()))


def unshared(
    nodes: Sequence[onnx.NodeProto], groups: Sequence[Group | None], held: Sequence[Sequence[Held]]
) -> list[Group | None]:
    """Return groups without what is only made of inputs, for several layers, in one that does more: masks, for example.

    What layers compute alike is in the file once, and is named after any of them.
    """
    makers = {name: number for number, node in enumerate(nodes) for name in node.output}
    prepares: list[bool] = []
    for node, constants in zip(nodes, held, strict=True):
        made = all(prepares[makers[name]] for name in names_read(node) if name in makers)
        prepares.append(made and not any(each.count for each in constants))
    does_more = {group for group, prepared in zip(groups, prepares, strict=True) if not prepared}
    found, readers = list(groups), _readers(nodes)
    for number, node in reversed(list(enumerate(nodes))):
        if prepares[number] and found[number] in does_more:
            reading = {found[each] for each in _reading(node, readers)} or {found[number]}
            found[number] = reading.pop() if len(reading) == 1 else None
    return found


def in_order(
    nodes: Sequence[onnx.NodeProto],
    groups: Sequence[Group],
    held: Sequence[Sequence[Held]],
    parts: Collection[Group],
) -> list[Group]:
    """Return groups that do not go round in circles, as far as what has no weights can be moved.

    tf2onnx moves what lays out on, behind later layers, and it goes to these; of the rest, what an earlier layer reads
    goes to that.
    """
    place = places(groups, held)
    found, readers = _laid_out(nodes, groups, place, parts), _readers(nodes)
    last = {group: number for number, group in enumerate(groups)}
    for number, node in reversed(list(enumerate(nodes))):
        own = found[number]
        layers = [group for each in _reading(node, readers) if _is_layer(group := found[each], parts)]
        if not layers or not _is_layer(own, parts) or any(each.count for each in held[number]):
            continue
        earliest = min(layers, key=place.__getitem__)
        if place[earliest] < place[own] and number < last[earliest]:
            found[number] = earliest
    return found


def places(groups: Sequence[Group], held: Sequence[Sequence[Held]]) -> dict[Group, int]:
    """Return where in a file each group works: the number of its last node with weights, or else of the middle one."""
    members: dict[Group, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    weighty = {
        group: [each for each in numbers if any(c.count for c in held[each])] for group, numbers in members.items()
    }
    return {group: (weighty[group] or numbers[: len(numbers) // 2 + 1])[-1] for group, numbers in members.items()}


def apart(nodes: Sequence[onnx.NodeProto], groups: list[Group | None]) -> list[Group]:
    """Return groups with one of its own for each set of nodes without a group that hang together."""
    found: list[Group] = []
    makers: dict[str, Group] = {}
    for node, group in zip(nodes, groups, strict=True):
        if group is None:
            touched = {makers[name] for name in node.input if is_other(makers.get(name, MODEL))}
            group = min(touched, default=("", node.output[0]))
            found = [group if each in touched else each for each in found]
            makers = {name: group if each in touched else each for name, each in makers.items()}
        found.append(group)
        makers |= dict.fromkeys(node.output, group)
    return found
