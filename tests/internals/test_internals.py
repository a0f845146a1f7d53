"""What `_internals` makes of private names of the libraries, and that it alone knows them."""

import ast
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_attn
import keras_attn_export
from keras_attn import _private_keras
from keras_attn_export._internals import keras_internals, tensorflow_internals

OURS = {Path(package.__file__).parent for package in (keras_attn, keras_attn_export)}
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for folder in OURS for file in folder.rglob("*.py")}
KNOW_PRIVATE_NAMES = r"_private_\w+|stock_attention|\w+_internals"  # where the names of the libraries may stand


@pytest.fixture
def model():
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense")], name="inner")
    queries = keras.Input((4,), name="queries")
    return keras.Model({"queries": queries}, [inner(queries)], name="outer")


def test_layers_at_any_depth(model):
    names = [layer.name for layer in keras_internals.layers_of(model)]
    assert names[0] == "outer"
    assert {"queries", "inner", "dense"} <= set(names)
    assert keras_internals.layers_of(model, include_self=False) == keras_internals.layers_of(model)[1:]


def test_the_functional_model_behind_a_model(model):
    assert keras_internals.functional_of(model) is model
    assert keras_internals.functional_of(model.get_layer("inner")) is not None
    own = type("Own", (keras.Model,), {"call": lambda self, x: x})
    for other in (own(), keras.Sequential([keras.layers.Dense(3)])):
        assert keras_internals.functional_of(other) is None


def test_what_a_functional_model_takes_and_gives(model):
    assert keras_internals.inputs_structure(model) == {"queries": model.inputs[0]}
    assert keras_internals.outputs_structure(model) == [model.outputs[0]]
    names = [node.operation.name for node in keras_internals.nodes_of(model)]
    assert names == ["queries", "inner"]
    assert keras_internals.operation_of(model.outputs[0]).name == "inner"


def test_sigmoids_and_log_softmaxes_are_seen_and_can_be_given_otherwise():
    x = np.float32([[-2, 0, 3]])
    dense = keras.layers.Dense(3, "sigmoid", kernel_initializer="identity")
    ops = keras.ops
    functions = (dense, ops.log_softmax, ops.silu, lambda x: ops.gelu(x, approximate=False), ops.gelu)
    expected = [function(x).numpy() for function in functions]
    with keras_internals.through_saturating(lambda found: found + 1):
        moved = [function(x).numpy() for function in functions]
    for factor, before, after in zip((1, 1, x, x, x), expected, moved, strict=True):
        np.testing.assert_allclose(after, before + factor, rtol=1e-6)
    for function, before in zip(functions, expected, strict=True):
        np.testing.assert_array_equal(function(x), before)


def test_what_the_layers_ask_of_keras(model):
    dense = keras.layers.Dense(2)
    outer = keras.Sequential([keras.layers.Dense(3), dense])
    assert dense in _private_keras.sublayers_of(outer)
    assert outer not in _private_keras.sublayers_of(outer)
    tensor = keras.Input((4,))
    assert [call.output_tensors for call in _private_keras.calls_of(dense)] == []
    output = dense(tensor)
    assert [call.output_tensors for call in _private_keras.calls_of(dense)] == [[output]]
    carrying = keras.ops.ones((2, 3))
    _private_keras.set_keras_mask(carrying, mask := keras.ops.ones((2,), "bool"))
    assert keras.src.backend.get_keras_mask(carrying) is mask
    assert not _private_keras.in_symbolic_scope()


def test_a_function_with_constants():
    variable = tf.Variable(np.float32([3]))
    outer = tf.function(lambda x: {"y": tf.nn.relu(x * variable)}, autograph=False)
    function = outer.get_concrete_function(tf.TensorSpec([None], tf.float32, name="x"))
    variable.assign([5.0])
    constant = tensorflow_internals.with_constants(function)
    assert not constant.variables
    np.testing.assert_array_equal(constant(tf.constant([2.0]))[0], [10.0])


def test_a_graph_with_constants_some_without_their_content():
    kernel, bias = tf.Variable(np.ones((300, 400), "float32")), tf.Variable(np.ones(400, "float32"))
    inner = tf.function(lambda x: {"y": x @ kernel + bias}, autograph=False)
    function = inner.get_concrete_function(tf.TensorSpec([None, 300], tf.float32, name="x"))
    graph, left_out = tensorflow_internals.graph_with_constants(function, lambda v: v.shape.rank == 2, inline=True)
    ((name, source),) = left_out.items()
    assert source is kernel
    constants = {node.name: node.attr["value"].tensor for node in graph.node if node.op == "Const"}
    assert [dim.size for dim in constants.pop(name).tensor_shape.dim] == [300, 400]
    assert [tf.make_ndarray(value).tolist() for value in constants.values()] == [[1.0] * 400]
    assert graph.ByteSize() < 10_000


def private_names(tree, own):
    """Yield the private names that a module takes from others, by attribute or by import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*", node.attr) and node.attr not in own:
            yield node.attr
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("keras.src", "tf.python", "tensorflow.python"):
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            yield from re.findall(r"^'(_[a-z]\w*)'$", ast.unparse(node.args[1]))
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            yield from (name for name in names if name.startswith(("tensorflow.", "keras.src")))


def own_names():
    """The private names that our own code defines: functions, classes, attributes and modules."""
    names = {"_replace", "_asdict", "_exit"}  # those of named tuples, and `os._exit`, are public
    for file, tree in TREES.items():
        names |= {part for part in file.with_suffix("").parts if part.startswith("_")}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if ast.unparse(node.value) == "self" else set()
    return names


def test_only_these_modules_know_private_names():
    own = own_names()
    found = {file: {*private_names(tree, own)} for file, tree in TREES.items()}
    elsewhere = {file.stem: names for file, names in found.items() if names}
    elsewhere = {stem: names for stem, names in elsewhere.items() if not re.fullmatch(KNOW_PRIVATE_NAMES, stem)}
    assert not elsewhere, "move these into `_internals`"


def test_a_private_name_is_seen():
    for line in (
        "model._flatten_layers()",
        "from tensorflow.python.grappler import tf_optimizer",
        "import keras.src.backend",
        "keras.src.backend.any_name()",
        "getattr(model, '_functional', None)",
    ):
        assert set(private_names(ast.parse(line), {"_own"})), line
