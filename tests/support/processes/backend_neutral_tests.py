"""Which tests hold the layers to their promises, and so run on every backend of Keras.

A file tells by what it imports, itself or through a helper of these tests: `keras` and `keras_attn`, and nothing that
needs TensorFlow. A test of such a file that does is marked `backends.only_on`, and imports it itself.
"""

import ast
from functools import cache
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[1]
OF_LAYERS = {"keras", "keras_attn"}
NEED_TENSORFLOW = {"tensorflow", "keras_attn_export", "babel"}  # babel: the demo, which exports what it trained


def is_layer_test(path):
    imported = imports(path)
    return path.name.startswith("test_") and imported >= OF_LAYERS and imported.isdisjoint(NEED_TENSORFLOW)


@cache
def imports(path):
    """The packages that a file imports when it is imported, those of helpers in tests/ included."""
    found = set(own_imports(path))
    for name in own_imports(path):
        for helper in (path.with_name(f"{name}.py"), *SUPPORT.glob(f"*/{name}.py")):
            if helper.is_file() and helper != path:
                found |= imports(helper)
    return frozenset(found)


@cache
def own_imports(path):
    statements = ast.parse(path.read_text()).body
    modules = [alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in statements if isinstance(node, ast.ImportFrom) and node.module is not None]
    return frozenset(module.split(".")[0] for module in modules)
