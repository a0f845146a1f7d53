"""Which tests hold the layers to their promises, and so run on every backend of Keras; and which of many pairs run.

A file tells by what it imports, itself or through a helper of these tests: `keras` and `keras_attn`, and nothing that
needs TensorFlow. A test of such a file that does is marked `backends.only_on`, and imports it itself.
"""

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

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


def pairs_in_turn(pairs: Sequence[tuple[Any, Any]], for_each: int = 2) -> list[bool]:
    """Of tests that run each layer with each of many masks, dtypes or modes, those that run unless `--pairs` says more.

    The first layer runs with all of them, each further one with one or two, in turn: what puts layers and masks
    together is the same code for all layers, and what a backend makes of an operation shows either way.
    """
    layers, others = (list(dict.fromkeys(column)) for column in zip(*pairs, strict=True))
    turns = {layer: [turn % len(others), (3 * turn + 1) % len(others)] for turn, layer in enumerate(layers)}
    return [layer == layers[0] or others.index(other) in turns[layer][:for_each] for layer, other in pairs]
