"""The layers of an ONNX file: which nodes and weights come from which Keras layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._graphs.read_only import load_graph
from . import scopes
from .constants import Held, held_by, measured
from .joining import REST, Group, Wires, places, settled, with_feeders

if TYPE_CHECKING:
    import onnx

OTHER = "other operators"
ATTENTION = "attention"  # the kind of an attention layer, and what that of a block with one inside begins with

# what a layer is called by, the first of these that its operators tell
_KINDS = {
    "recurrent": scopes.RECURRENT,
    "loop": ("Loop", "Scan"),
    "convolution": ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"),
    "normalization": ("LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization"),
    "dense": ("MatMul", "Gemm", "MatMulInteger", "Einsum"),
    "pooling": ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
}

_LAYOUT = ("Cast", "Constant", "Identity", "Reshape", "Shape", "Squeeze", "Transpose", "Unsqueeze")


@dataclass(frozen=True)
class Layer:
    """A group of nodes that come from one call of a Keras layer.

    Attributes:
        name: The path of the layer below the model; a further call has a number after it.
        kind: What it is, as far as its operators tell: "attention", "dense", "convolution", an operator, ...
        operators: How many nodes it has of each type.
        weights: How many parameters it is the first to read.
        weight_bytes: Of these and of other constants.
    """

    name: str
    kind: str
    operators: dict[str, int]
    weights: int
    weight_bytes: int


def read_layers(model: Path, attention: Sequence[str]) -> list[Layer]:
    """Return the layers of an ONNX file in the order in which they run.

    Weights that lie in files of their own are not read.

    Args:
        model: The file.
        attention: Paths of its attention layers.

    Raises:
        BundleError: onnx cannot read it.
        ExportError: onnx is not installed.
    """
    proto = load_graph(model)
    nodes = list(proto.graph.node)
    kernels = {each.name for each in proto.graph.initializer if len(each.dims) > 1 and measured(each).count}
    paths = scopes.node_paths(nodes, kernels)
    told = [path for path in paths if path is not None]
    attending = scopes.attention_paths(told, attention)
    held = held_by(proto)
    wires = Wires(nodes, [any(each.count for each in constants) for constants in held])
    near = with_feeders(wires, paths)
    # tf2onnx makes one nameless node of both layers of a `Bidirectional`
    recurrent = {
        path[:depth]
        for path, node in zip(near, nodes, strict=True)
        if path and node.op_type in scopes.RECURRENT
        for depth in range(1, len(path) + 1)
    }
    parts = scopes.taken_apart(told, attending | recurrent)
    named = [_group(path, weighty, parts) for path, weighty in zip(paths, wires.weighty, strict=True)]
    groups = settled(wires, named)
    place = places(wires, groups)
    return _layers(nodes, groups, sorted(place, key=place.__getitem__), held, attending)


def _group(path: Group | None, weighty: bool, parts: Collection[Group]) -> Group | None:
    """Return the group of a node by its path; ops between layers that hold no weights are of none."""
    if path is None or (path in parts and not weighty):
        return None
    return scopes.group_of(path, parts)


def _layers(
    nodes: Sequence[onnx.NodeProto],
    groups: Sequence[Group],
    order: Sequence[Group],
    held: Sequence[Sequence[Held]],
    attending: Collection[Group],
) -> list[Layer]:
    called = _names(order)
    members: dict[Group, list[int]] = {group: [] for group in order}
    for number, group in enumerate(groups):
        members[group].append(number)
    layers = []
    for group, numbers in members.items():
        operators = Counter(nodes[number].op_type for number in numbers)
        constants = [each for number in numbers for each in held[number]]
        reads_table = any(
            nodes[number].op_type == "Gather" and any(each.axes > 1 and each.count for each in held[number])
            for number in numbers
        )
        layers.append(
            Layer(
                called[group],
                _kind(operators, _attention(group, attending), reads_table=reads_table),
                dict(operators.most_common()),
                sum(each.count for each in constants),
                sum(each.size for each in constants),
            )
        )
    return layers


def _names(groups: Sequence[Group]) -> dict[Group, str]:
    """Return a name for each group, with a number for further calls of a layer."""
    counted: Counter[str] = Counter()
    names = {}
    for group in groups:
        name = OTHER if group == REST else scopes.shown(*group) or "(model)"
        counted[name] += 1
        number = counted[name]
        names[group] = name if number == 1 else f"{name} (call {number})"
    return names


def _attention(group: Group, attending: Collection[Group]) -> str | None:
    if group in attending:
        return ATTENTION
    inner = group and any(path[: len(group)] == group for path in attending)
    return f"{ATTENTION} block" if inner else None


def _kind(operators: Mapping[str, int], attention: str | None, *, reads_table: bool) -> str:
    if attention is not None:
        return attention
    if reads_table:
        return "embedding"
    if operators.keys() >= {"ReduceMean", "Sqrt"}:
        return "normalization"
    if kind := next((kind for kind, types in _KINDS.items() if any(each in operators for each in types)), None):
        return kind
    types = [operator for operator in operators if operator not in _LAYOUT] or list(operators)
    return types[0].removeprefix("Reduce").lower() if len(types) == 1 else "operators"
