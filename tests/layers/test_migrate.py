"""Weights from other frameworks: equality of outputs with the trained layers, and examples of the document."""

import importlib
import re
from functools import partial
from pathlib import Path
from typing import get_args

import keras
import numpy as np
import pytest
from backends import run_only_on
from keras import ops
from textbook_subprocess import TextbookProcess
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention, MultiHeadAttention, migrate
from keras_attn.migrate import from_state

B, Tq, Tk, Dq, Dk, Dv, U = 2, 3, 5, 4, 7, 6, 8
H, HIDDEN = 3, 12
TEXTBOOKS = {  # source: module that runs its trained layers
    "torch": "torch",
    "tensorflow": "tensorflow",
    "flax": "flax",
    "paddle": "paddle",
    "mxnet": "numpy",
    "tfa": "numpy",
}
LENGTHS = [None, np.array([2, 4]), np.array([[1, 5, 3], [2, 4, 1]])]  # none, (B,), (B, Tq)


def import_oracle(source):
    """Return the oracle module that runs the trained layers of a source."""
    if source == "paddle":
        return TextbookProcess("textbook_paddle")
    return importlib.import_module(f"textbook_{TEXTBOOKS[source]}")


def create_rng():
    return np.random.default_rng(1)


def draw_inputs(*sizes):
    """Return queries, keys and values of these sizes."""
    rng, lengths = np.random.default_rng(2), (Tq, Tk, Tk)
    return [rng.normal(size=(B, t, size)).astype("float32") for t, size in zip(lengths, sizes, strict=True)]


def assert_same_outputs(layer, run, inputs, valid_lens=None):
    output = ops.convert_to_numpy(layer(*inputs, valid_lens))
    assert_close(output, np.asarray(run(*inputs, valid_lens), "float32"), tolerance=1e-6)


def build_heads(**options):
    return MultiHeadAttention(DotProductAttention(), H, **options)


sizes = (Dq, Dk, Dv)
textbook_options = {"key_dim": HIDDEN // H, "output_dim": HIDDEN}
TRAINED_LAYERS = {  # by name: source, function `build_...` of its oracle, its arguments, layer of the package, sizes
    "mxnet dot product": ("mxnet", "dot_product", (), DotProductAttention, (Dq, Dq, Dv)),
    "torch packed": ("torch", "own_multi_head", (HIDDEN,) * 3 + (H, True), build_heads, (HIDDEN,) * 3),
    "tfa heads": (
        "tfa",
        "addons_multi_head",
        (*sizes, H, 5, 10, True),
        partial(build_heads, key_dim=5, output_dim=10),
        sizes,
    ),
}
for source in [*TEXTBOOKS][:-1]:
    TRAINED_LAYERS[f"{source} additive"] = (source, "additive", (Dq, Dk, U), partial(AdditiveAttention, U), sizes)
    build_layer = partial(build_heads, **textbook_options)
    TRAINED_LAYERS[f"{source} heads"] = (source, "multi_head", (*sizes, HIDDEN, H), build_layer, sizes)
for source in ("torch", "paddle"):
    own_sizes = (HIDDEN, Dk, Dv)
    build_layer = partial(build_heads, use_bias=False)
    TRAINED_LAYERS[f"{source} own heads"] = (source, "own_multi_head", (*own_sizes, H, False), build_layer, own_sizes)
for bias in (True, False):
    build_flax_heads = partial(build_heads, use_bias=bias, **(textbook_options | {"output_dim": 10}))
    bahdanau = partial(AdditiveAttention, U, normalize=bias)
    trained_layers = {
        "flax own heads": ("flax", "own_multi_head", (*sizes, H, HIDDEN, 10, bias), build_flax_heads, sizes),
        "torch bilinear": ("torch", "own_bilinear", (Dq, Dk, bias), BilinearAttention, sizes),
        "paddle bilinear": ("paddle", "own_bilinear", (Dq, Dk, bias), BilinearAttention, sizes),
        "tfa bahdanau": ("tfa", "bahdanau", (Dq, Dk, U, bias), bahdanau, sizes),
        "tfa luong": ("tfa", "luong", (Dq, Dk, bias), BilinearAttention, sizes),
    }
    TRAINED_LAYERS |= {f"{name}, {bias}": trained_layer for name, trained_layer in trained_layers.items()}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs(TEXTBOOKS[source])) for name, (source, *_) in TRAINED_LAYERS.items()],
)
def test_loaded_layer_equals_the_trained_layer(name):
    source, function, arguments, build_layer, sizes = TRAINED_LAYERS[name]
    state, run = getattr(import_oracle(source), f"build_{function}")(create_rng(), *arguments)
    assert ("in_proj_weight" in state) == ("packed" in name)
    prefix = "attention" if source == "tensorflow" or "flax own" in name else ""
    layer = from_state(build_layer(), state, source, prefix=prefix)
    accepts_lengths_per_query = function != "own_multi_head" or source == "flax"
    for valid_lens in LENGTHS[: 3 if accepts_lengths_per_query else 2]:
        assert_same_outputs(layer, run, draw_inputs(*sizes), valid_lens)


def test_dense_layer_from_keys_to_queries_is_a_bilinear_kernel():
    kernel = create_rng().normal(size=(Dk, Dq)).astype("float32")
    for source, state in (("torch", {"W.weight": kernel.T}), ("tensorflow", {"W/kernel": kernel})):
        layer = from_state(BilinearAttention(), state, source)
        assert_identical(ops.convert_to_numpy(layer.W.kernel), kernel)


def test_scale_in_a_checkpoint_of_addons_has_the_name_of_its_attribute():
    state, run = import_oracle("tfa").build_luong(create_rng(), Dq, Dk, True)
    paths = {"memory_layer/kernel": "memory_layer/kernel:0", "scale_weight": "attention_g:0"}
    state = {f"{attribute}/.ATTRIBUTES/VARIABLE_VALUE": state[path] for attribute, path in paths.items()}
    assert_same_outputs(from_state(BilinearAttention(), state, "tfa"), run, draw_inputs(Dq, Dk, Dv))


def draw_state(layer):
    """Set the weights of a Keras layer to random numbers and return them by path."""
    rng = create_rng()
    layer.set_weights([rng.normal(size=weight.shape) / 2 for weight in layer.weights])
    return {weight.path: ops.convert_to_numpy(weight) for weight in layer.weights}


@pytest.mark.parametrize(
    ("layer_class", "options"),
    [
        (keras.layers.AdditiveAttention, {}),
        (keras.layers.AdditiveAttention, {"use_scale": False}),
        (keras.layers.Attention, {"use_scale": True}),
        (keras.layers.Attention, {}),
        (keras.layers.Attention, {"score_mode": "concat"}),
        (keras.layers.Attention, {"score_mode": "concat", "use_scale": True}),
    ],
    ids=["additive", "additive, no scale", "dot, scale", "dot", "concat", "concat, scale"],
)
def test_loaded_layer_equals_attention_of_keras(layer_class, options):
    queries, keys, values = draw_inputs(Dq, Dq, Dv)
    keras_layer = layer_class(**options)
    keras_layer.build([queries.shape, values.shape, keys.shape])
    state = draw_state(keras_layer)
    is_dot_product = layer_class is keras.layers.Attention and "score_mode" not in options
    layer = DotProductAttention() if is_dot_product else AdditiveAttention(Dq)
    from_state(layer, state, "keras", prefix=keras_layer.name if state else "")
    for valid_lens in LENGTHS[:2]:
        mask = None if valid_lens is None else [None, np.arange(Tk) < valid_lens[:, None]]
        expected = keras_layer([queries, values, keys], mask=mask)
        output = layer(queries, keys, values, valid_lens)
        assert_close(ops.convert_to_numpy(output), ops.convert_to_numpy(expected), tolerance=1e-6)


@pytest.mark.parametrize(
    ("build_keras_layer", "options"),
    [
        (
            lambda: keras.layers.MultiHeadAttention(H, 5, value_dim=9, output_shape=10),
            {"num_heads": H, "key_dim": 5, "value_dim": 9, "output_dim": 10},
        ),
        (
            lambda: keras.layers.GroupQueryAttention(5, 6, 2, use_bias=False),
            {"num_heads": 6, "key_dim": 5, "num_kv_heads": 2, "use_bias": False},
        ),
    ],
    ids=["heads", "groups without bias"],
)
def test_loaded_layer_equals_multi_head_attention_of_keras(build_keras_layer, options):
    queries, keys, values = draw_inputs(Dq, Dk, Dv)
    keras_layer = build_keras_layer()
    keras_layer.build(queries.shape, values.shape, keys.shape)
    state = draw_state(keras_layer)
    layer = MultiHeadAttention(DotProductAttention(), **options)
    from_state(layer, state, "keras", prefix=keras_layer.name)
    for mask in (None, np.arange(Tk) < LENGTHS[2][..., None]):
        # On JAX, Keras accepts values of another size than keys only if the scores are returned.
        expected, _ = keras_layer(queries, values, keys, attention_mask=mask, return_attention_scores=True)
        output = ops.convert_to_numpy(layer(queries, keys, values, attention_mask=mask))
        assert_close(output, ops.convert_to_numpy(expected), tolerance=1e-6)


DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
CODE_BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
on_tensorflow = run_only_on("tensorflow", reason="the examples of the document use TensorFlow")


@on_tensorflow
def test_examples_of_the_document_run():
    namespace = {}
    blocks = [block for block in CODE_BLOCKS if "import torch" not in block]
    assert len(blocks) == len(CODE_BLOCKS) - 1
    for block in blocks:
        assert "assert" in block or "def " in block
        exec(compile(block, "docs/migrating.md", "exec"), namespace)


@on_tensorflow
@pytest.mark.needs("torch")
def test_torch_example_of_the_document_runs():
    (block,) = [block for block in CODE_BLOCKS if "import torch" in block]
    exec(compile(block, "docs/migrating.md", "exec"), {})


def test_document_names_every_source():
    sources = re.findall(r'^\| `"(\w+)"` \|', DOCUMENT, flags=re.MULTILINE)
    assert sorted(sources) == sorted(get_args(migrate.Source))
