"""Private names of the libraries: their wrappers, the modules that use them, and their table in the documents."""

import ast
import re
from pathlib import Path

import keras
import numpy as np
import onnx.parser
import pytest
from tf2onnx import optimizer
from tf2onnx.graph import GraphUtil
from tf2onnx.optimizer.identity_optimizer import IdentityOptimizer

import keras_attn
import keras_attn_export
from keras_attn_export._private_api import keras_internals, tf2onnx_patches
from keras_attn_export._private_api.private_names import PRIVATE_NAMES

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {Path(package.__file__).parent for package in (keras_attn, keras_attn_export)}
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for folder in PACKAGES for file in folder.rglob("*.py")}
# Modules that may use private names of the libraries.
WRAPPER_MODULES = r"private_api|builtin_attention|ordered_sets|\w+_internals|tf2onnx_patches"


def test_saturating_functions_are_intercepted():
    x = np.float32([[-2, 0, 3]])
    dense = keras.layers.Dense(3, "sigmoid", kernel_initializer="identity")
    ops = keras.ops
    functions = (dense, ops.log_softmax, ops.silu, lambda x: ops.gelu(x, approximate=False), ops.gelu)
    expected = [function(x).numpy() for function in functions]
    with keras_internals.intercept_saturating(lambda output: output + 1):
        outputs = [function(x).numpy() for function in functions]
    for factor, original, output in zip((1, 1, x, x, x), expected, outputs, strict=True):
        np.testing.assert_allclose(output, original + factor, rtol=1e-6)
    for function, original in zip(functions, expected, strict=True):
        np.testing.assert_array_equal(function(x), original)


class FailingOptimizer:
    """Optimizer of tf2onnx that fails after a change of the graph."""

    graph_been_opt = False

    def optimize(self, graph, _):
        graph.remove_node(graph.get_nodes()[0].name)
        raise ValueError


# After a failure there are a common copy, and one for each of two optimizers in two rounds.
@pytest.mark.parametrize(("factory", "num_copies"), [(IdentityOptimizer, 1), (FailingOptimizer, 5)])
def test_failing_tf2onnx_optimizer_is_skipped(monkeypatch, factory, num_copies):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> test (float[2] x) => (float[2] y)'
        "{ same = Identity (x) \n positive = Relu (same) \n y = Abs (positive) }"
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"node{number}"
    graph, originals, copy = GraphUtil.create_graph_from_onnx_model(model), [], tf2onnx_patches.copy.deepcopy
    monkeypatch.setattr(tf2onnx_patches.copy, "deepcopy", lambda x, *args: originals.append(x) or copy(x, *args))
    result = optimizer.optimize_graph(graph, True, {"first": factory, "identity": IdentityOptimizer})
    assert sorted(node.type for node in result.get_nodes()) == ["Abs", "Placeholder", "Relu"]
    assert sum(type(original) is type(graph) for original in originals) == num_copies


def find_private_names(tree, own_names):
    """Yield the private names of other packages that a module uses, by attribute or by import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*", node.attr) and node.attr not in own_names:
            yield node.attr
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("keras.src", "tf.python", "tensorflow.python"):
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            yield from re.findall(r"^'(_[a-z]\w*)'$", ast.unparse(node.args[1]))
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (name for name in names if name.startswith(("tensorflow.", "keras.src")))


def collect_own_names():
    """Return the names that this project defines: functions, classes, attributes and modules."""
    names = {"_replace", "_asdict", "_fields", "_exit"}  # public names of named tuples, and `os._exit`
    names |= {part for file in TREES for part in file.with_suffix("").parts if part.startswith("_")}
    for node in (node for tree in TREES.values() for node in ast.walk(tree)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
    return names


@pytest.mark.slow
def test_only_wrapper_modules_use_private_names():
    own_names = collect_own_names()
    trees = [(file.stem, tree) for file, tree in TREES.items() if not re.fullmatch(WRAPPER_MODULES, file.stem)]
    names_by_module = {stem: names for stem, tree in trees if (names := {*find_private_names(tree, own_names)})}
    assert not names_by_module, "move these into `_private_api`"


def test_page_shows_the_table_of_private_names():
    page = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    rows = [f"| {row.library} | `{row.names}` | {row.purpose} | {row.failure} |" for row in PRIVATE_NAMES]
    assert "\n".join(rows) in page


@pytest.mark.slow
def test_table_has_every_private_name():
    table_names = set(re.findall(r"\w+", " ".join(row.names for row in PRIVATE_NAMES)))
    own_names = collect_own_names()
    trees = [tree for file, tree in TREES.items() if re.fullmatch(WRAPPER_MODULES, file.stem)]
    names = {name.rpartition(".")[2] for tree in trees for name in find_private_names(tree, own_names)}
    assert names - {"protobuf", "framework", "grappler", "ops", "src"} <= table_names


def test_layers_override_no_private_method_of_keras():
    """Keras 3.16 has a `Layer._dispatch_call`, for example."""
    public = [*vars(keras_attn).values(), *vars(keras_attn.decoding).values()]
    for layer in (value for value in public if isinstance(value, type) and issubclass(value, keras.layers.Layer)):
        own = {name for base in layer.__mro__ if base.__module__.startswith("keras_attn.") for name in vars(base)}
        inherited = {name for base in layer.__mro__ if base.__module__.startswith("keras.") for name in vars(base)}
        assert not {name for name in own & inherited if re.match(r"_[a-z]", name)}, layer.__name__
