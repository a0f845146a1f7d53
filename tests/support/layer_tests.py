"""Which tests hold the layers to their promises, and so run on every backend of Keras; and which of many pairs run.

A file tells by what it imports, itself or through a helper of these tests: `keras` and `keras_attn`, and nothing that
needs TensorFlow. A test of such a file that does is marked `backends.only_on`, and imports it itself.
"""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
OF_LAYERS = {"keras", "keras_attn"}
NEED_TENSORFLOW = {"tensorflow", "keras_attn_export", "babel"}  # babel: the demo, which exports what it trained


def is_layer_test(path: Path) -> bool:
    """Whether a file in tests/ is collected on every backend."""
    imported = imports(path)
    return path.name.startswith("test_") and imported >= OF_LAYERS and imported.isdisjoint(NEED_TENSORFLOW)


@cache
def imports(path: Path) -> frozenset[str]:
    """The packages that a file imports when it is imported, those of helpers in tests/ included."""
    found = set(own_imports(path))
    for name in own_imports(path):
        for helper in (TESTS / f"{name}.py", TESTS / "support" / f"{name}.py"):
            if helper.is_file():
                found |= imports(helper)
    return frozenset(found)


@cache
def own_imports(path: Path) -> frozenset[str]:
    """The packages of the import statements at the top level of a file."""
    statements = ast.parse(path.read_text()).body
    modules = [alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in statements if isinstance(node, ast.ImportFrom) and node.module is not None]
    return frozenset(module.split(".")[0] for module in modules)


def pairs_out_of_turn(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Of tests that put each layer with each of many masks, dtypes or modes, the pairs that are not quick for all that.

    Such a test has a parameter `case` with a `name`, and others. The first layer runs with all of them each time, each
    further one with one, in turn: what puts layers and masks together is the same code for all layers.
    """
    tests: dict[str, list[tuple[pytest.Item, tuple[str, str]]]] = {}
    for item in items:
        parameters = {**getattr(getattr(item, "callspec", None), "params", {})}
        if len(parameters) > 1 and hasattr(parameters.get("case"), "name"):
            pair = parameters.pop("case").name, str(parameters)
            tests.setdefault(item.nodeid.split("[")[0], []).append((item, pair))
    found: list[pytest.Item] = []
    for test in tests.values():
        runs = pairs_in_turn([pair for _, pair in test])
        found += [item for (item, _), run in zip(test, runs, strict=True) if not run]
    return found


def pairs_in_turn(pairs: Sequence[tuple[Any, Any]]) -> list[bool]:
    """Whether each pair of a layer and another value runs each time: all of the first layer, one of each other."""
    layers, others = (list(dict.fromkeys(column)) for column in zip(*pairs, strict=True))
    turns = {layer: turn % len(others) for turn, layer in enumerate(layers)}
    return [layer == layers[0] or others.index(other) == turns[layer] for layer, other in pairs]
