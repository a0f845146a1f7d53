"""Selection of the layer tests, which run on every backend of Keras, by imports.

A file of layer tests imports `keras` and `keras_attn`, and nothing that needs TensorFlow, itself or through helpers.
A test of the file that needs TensorFlow has the mark `backends.run_only_on`, and imports TensorFlow itself.
"""

import ast
from functools import cache
from pathlib import Path

SUPPORT_FOLDER = Path(__file__).resolve().parents[1]
LAYER_PACKAGES = {"keras", "keras_attn"}
TENSORFLOW_PACKAGES = {"tensorflow", "keras_attn_export", "babel"}  # babel: the demo exports its trained model


def is_layer_test(path):
    imported = find_imports(path)
    return path.name.startswith("test_") and imported >= LAYER_PACKAGES and imported.isdisjoint(TENSORFLOW_PACKAGES)


@cache
def find_imports(path):
    """Return the packages that a file imports at module level, including the imports of helpers in tests/."""
    packages = set(find_direct_imports(path))
    for name in find_direct_imports(path):
        for helper in (path.with_name(f"{name}.py"), *SUPPORT_FOLDER.glob(f"*/{name}.py")):
            if helper.is_file() and helper != path:
                packages |= find_imports(helper)
    return frozenset(packages)


@cache
def find_direct_imports(path):
    statements = ast.parse(path.read_text()).body
    modules = [alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in statements if isinstance(node, ast.ImportFrom) and node.module is not None]
    return frozenset(module.split(".")[0] for module in modules)
