"""Which variables a traced function assigns to, however deep in the functions that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SEEDS = "seed_generator_state"  # what Keras calls the variable of a `keras.random.SeedGenerator`


def assigned(function: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (node, op, variable) of every node of a concrete function that changes a variable.

    The variable is the name of what the function captured, or empty where it cannot be told.
    """
    graph = function.graph.as_graph_def()
    names = {id(variable.handle): _stem(variable.name) for variable in function.graph.variables}
    captured = {_stem(inner.name): names.get(id(outer), "") for outer, inner in function.graph.captures}
    library = {each.signature.name: each for each in graph.library.function}
    yield from _assigned(graph.node, captured, library)


def _assigned(nodes: Any, handles: Mapping[str, str], library: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    known = dict(handles)  # the variable by the name of the tensor that is its handle
    for node in nodes:
        inputs = [_stem(each) for each in node.input if not each.startswith("^")]
        if node.op == "Identity" and inputs[0] in known:
            known[node.name] = known[inputs[0]]
        if node.op.startswith("Assign") and node.op.endswith("VariableOp"):
            yield node.name, node.op, known.get(inputs[0], "")
        for called in _called(node, library):
            names = [each.name for each in called.signature.input_arg]
            given = inputs[len(inputs) - len(names) :]  # a branch's condition comes before
            inside = {name: known.get(tensor, "") for name, tensor in zip(names, given, strict=False)}
            yield from _assigned(called.node_def, inside, library)


def _called(node: Any, library: Mapping[str, Any]) -> list[Any]:
    """Return the functions that a node calls: the bodies of calls, branches and loops."""
    named = [each.name for value in node.attr.values() for each in (value.func, *value.list.func)]
    return [library[name] for name in named if name in library]


def _stem(tensor: str) -> str:
    return tensor.partition(":")[0]
