"""Assign each node to a Keras layer, by its name or by its producers and consumers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import onnx

from .traversal import names_read


def scopes_of(graph: onnx.GraphProto, layers: Collection[str], weights: Collection[str], holder: str) -> list[str]:
    """Return the scope of the layer that each node of a graph is in; that of `holder` where there is none.

    One that reads no weights is with the one layer that feeds it, else with the one that reads it, as one with weights.

    Args:
        graph: The graph, its nodes in order.
        layers: Names of layers, which scopes are called after.
        weights: Names of weights that are no constants of the graph.
        holder: The name of the node that holds the graph.
    """
    heavy = {*weights, *(each.name for each in graph.initializer if len(each.dims) > 1)}
    makers: dict[str, int] = {}
    found: list[str | None] = []
    feeders: list[list[int]] = []
    readers: list[list[int]] = [[] for _ in graph.node]
    for number, node in enumerate(graph.node):
        feeders.append(sorted({makers[name] for name in names_read(node) if name in makers}))
        for each in feeders[number]:
            readers[each].append(number)
        makers |= dict.fromkeys(node.output, number)
        # weights of a convolution that a batch normalization after it went into, and gave its name
        kernels = [name for name in node.input if "/merged_input" in name]
        found.append(_layer_scope((*kernels, node.name, *node.output), layers))
    numbers = range(len(found))
    for number in numbers:
        if found[number] is None and heavy.isdisjoint(graph.node[number].input):
            found[number] = _only(found[each] for each in feeders[number])
    for number in reversed(numbers):
        if found[number] is None:
            found[number] = _only(found[each] for each in readers[number])
    for number in numbers:
        if found[number] is None:
            found[number] = _only(found[each] for each in feeders[number] if found[each] is not None)
    return [each or holder for each in found]


def _only(scopes: Iterable[str | None]) -> str | None:
    different = {*scopes}
    return different.pop() if len(different) == 1 else None


def _layer_scope(names: Iterable[str], layers: Collection[str]) -> str | None:
    """Return the part of the first name that tells a layer up to the innermost one; TensorFlow numbers scopes."""
    for name in names:
        scopes = name.split("/")[:-1]
        for depth in range(len(scopes), 0, -1):
            scope = scopes[depth - 1]
            if scope in layers or re.sub(r"_\d+$", "", scope) in layers:
                return "/".join(scopes[:depth])
    return None
