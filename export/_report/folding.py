"""Layers of a large graph folded into groups, so that a picture of it can be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from .layers import ATTENTION, Layer, LayerGraph, Port

MOST = 60  # layers that are drawn each
FOLDED = 40  # boxes, where layers are folded by their names
MOST_BOXES = 150  # of a graph that neither names nor chains fold
CHEAP = 0.03  # share of time of a layer that may go into a chain


def folded(graph: LayerGraph, times: Mapping[str, float]) -> tuple[LayerGraph, dict[str, float]]:
    """Return a graph of groups of layers, with their times: first by the beginnings of names, then of cheap chains.

    Groups are of layers that follow on each other. A graph of few layers stays as it is; one of very many that neither
    folds is cut into slices.
    """
    if len(graph.layers) > MOST:
        graph, times = _merged(graph, times, _by_names(graph))
    if len(graph.layers) > MOST:
        graph, times = _merged(graph, times, _chains(graph, times))
    if len(graph.layers) > MOST_BOXES:
        graph, times = _merged(graph, times, _slices(graph.layers))
    return graph, dict(times)


def _by_names(graph: LayerGraph) -> list[list[Layer]]:
    """Return runs of layers whose names begin alike, with as much of them as makes few groups."""
    runs = _runs(graph.layers, 1)
    for length in range(2, 12):
        longer = [part for run in runs for part in (_runs(run, length) if len(run) > 1 else [run])]
        if len(longer) > FOLDED:
            break
        runs = longer
    return runs


def _runs(layers: Sequence[Layer], length: int) -> list[list[Layer]]:
    def beginning(layer: Layer) -> tuple[object, ...]:
        # an attention layer is what this is about, and is not hidden in a group
        return (layer.name,) if _attends(layer) else tuple(_parts(layer.name)[: 2 * length - 1])

    return [list(run) for _, run in groupby(layers, beginning)]


def _attends(layer: Layer) -> bool:
    return layer.kind.startswith(ATTENTION)


def _parts(name: str) -> list[str]:
    """Return the parts of a name with what is between them: `block`, `_`, `3`, `/`, `expand`."""
    return re.split(r"([/_])", name)


def _chains(graph: LayerGraph, times: Mapping[str, float]) -> list[list[Layer]]:
    """Return runs of layers that take little time and feed only the next."""
    after: dict[str, set[str]] = {}
    before: dict[str, set[str]] = {}
    for source, target in graph.edges:
        after.setdefault(source, set()).add(target)
        before.setdefault(target, set()).add(source)
    total = sum(times.values()) or 1.0

    def is_cheap(layer: Layer) -> bool:
        return not _attends(layer) and times.get(layer.name, 0.0) / total < CHEAP

    runs: list[list[Layer]] = []
    for layer in graph.layers:
        last = runs[-1][-1] if runs else None
        follows = last is not None and after.get(last.name) == {layer.name} and before.get(layer.name) == {last.name}
        if follows and is_cheap(layer) and is_cheap(runs[-1][-1]):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return runs


def _slices(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Return runs of as many layers as make few enough; attention stays by itself."""
    attending = sum(_attends(layer) for layer in layers)
    size = -(-len(layers) // max(1, MOST_BOXES // 2 - attending))
    runs: list[list[Layer]] = []
    for is_attention, group in groupby(layers, _attends):
        run, each = list(group), 1 if is_attention else size
        runs += [run[start : start + each] for start in range(0, len(run), each)]
    return runs


def _merged(
    graph: LayerGraph, times: Mapping[str, float], runs: Sequence[Sequence[Layer]]
) -> tuple[LayerGraph, dict[str, float]]:
    counts: Counter[str] = Counter()
    groups: list[Layer] = []
    of_layer: dict[str, str] = {}
    merged_times = dict(times)
    for run in runs:
        group = _group(run)
        counts[group.name] += 1
        if counts[group.name] > 1:
            group = _renamed(group, f"{group.name} ({counts[group.name]})")
        groups.append(group)
        of_layer |= {layer.name: group.name for layer in run}
        if len(run) > 1:
            taken = [merged_times.pop(layer.name) for layer in run if layer.name in merged_times]
            merged_times |= {group.name: sum(taken)} if taken else {}
    edges = ((of_layer[source], of_layer[target]) for source, target in graph.edges)
    merged = LayerGraph(
        tuple(groups),
        tuple(dict.fromkeys((source, target) for source, target in edges if source != target)),
        tuple(_ports(graph.inputs, of_layer)),
        tuple(_ports(graph.outputs, of_layer)),
    )
    return merged, merged_times


def _group(run: Sequence[Layer]) -> Layer:
    if len(run) == 1:
        return run[0]
    operators: Counter[str] = Counter()
    for layer in run:
        operators.update(layer.operators)
    return Layer(
        _name([layer.name for layer in run]),
        f"{sum(map(_members, run))} layers",
        dict(operators.most_common()),
        sum(layer.weights for layer in run),
        sum(layer.weight_bytes for layer in run),
        tuple(node for layer in run for node in layer.nodes),
    )


def _members(layer: Layer) -> int:
    number, _, what = layer.kind.partition(" ")
    return int(number) if what == "layers" else 1


def _name(names: Sequence[str]) -> str:
    """Return what names have in common with a star, or the first and the last."""
    common = []
    for parts in zip(*map(_parts, names), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    beginning = "".join(common)
    if not re.search(r"\w", beginning):
        return f"{names[0]} … {names[-1]}"
    return beginning + ("*" if beginning[-1] in "/_" else "…")


def _renamed(layer: Layer, name: str) -> Layer:
    return Layer(name, layer.kind, layer.operators, layer.weights, layer.weight_bytes, layer.nodes)


def _ports(ports: Sequence[Port], of_layer: Mapping[str, str]) -> Iterator[Port]:
    for port in ports:
        yield Port(port.name, tuple(dict.fromkeys(of_layer[layer] for layer in port.layers)))
