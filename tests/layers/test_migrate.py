"""Weights from other frameworks: our outputs beside theirs, and the document that says so."""

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
TEXTBOOKS = {  # source: Python module that its oracle needs
    "torch": "torch",
    "tensorflow": "tensorflow",
    "flax": "flax",
    "paddle": "paddle",
    "mxnet": "numpy",
    "tfa": "numpy",
}
LENGTHS = [None, np.array([2, 4]), np.array([[1, 5, 3], [2, 4, 1]])]  # the last for each query


def textbook(source):
    """Return the oracle that runs the trained layers of a source."""
    if source == "paddle":
        return TextbookProcess("textbook_paddle")
    return importlib.import_module(f"textbook_{TEXTBOOKS[source]}")


def generator():
    return np.random.default_rng(1)


def inputs_of(*sizes):
    """Return queries, keys and values of these sizes."""
    random, lengths = np.random.default_rng(2), (Tq, Tk, Tk)
    return [random.normal(size=(B, t, size)).astype("float32") for t, size in zip(lengths, sizes, strict=True)]


def assert_same_outputs(layer, run, inputs, valid_lens=None):
    output = ops.convert_to_numpy(layer(*inputs, valid_lens))
    assert_close(output, np.asarray(run(*inputs, valid_lens), "float32"), tolerance=1e-6)


def heads(**options):
    return MultiHeadAttention(DotProductAttention(), H, **options)


sizes = (Dq, Dk, Dv)
of_textbook = {"key_dim": HIDDEN // H, "output_dim": HIDDEN}
TRAINED = {  # name: source, function of its oracle and arguments, our layer, sizes of inputs
    "mxnet dot product": ("mxnet", "dot_product", (), DotProductAttention, (Dq, Dq, Dv)),
    "torch packed": ("torch", "own_multi_head", (HIDDEN,) * 3 + (H, True), heads, (HIDDEN,) * 3),
    "tfa heads": (
        "tfa",
        "addons_multi_head",
        (*sizes, H, 5, 10, True),
        partial(heads, key_dim=5, output_dim=10),
        sizes,
    ),
}
for source in [*TEXTBOOKS][:-1]:
    TRAINED[f"{source} additive"] = (source, "additive", (Dq, Dk, U), partial(AdditiveAttention, U), sizes)
    TRAINED[f"{source} heads"] = (source, "multi_head", (*sizes, HIDDEN, H), partial(heads, **of_textbook), sizes)
for source in ("torch", "paddle"):
    large = (HIDDEN, Dk, Dv)
    own = (source, "own_multi_head", (*large, H, False), partial(heads, use_bias=False), large)
    TRAINED[f"{source} own heads"] = own
for bias in (True, False):
    of_flax = partial(heads, use_bias=bias, **(of_textbook | {"output_dim": 10}))
    bahdanau = partial(AdditiveAttention, U, normalize=bias)
    trained = {
        "flax own heads": ("flax", "own_multi_head", (*sizes, H, HIDDEN, 10, bias), of_flax, sizes),
        "torch bilinear": ("torch", "own_bilinear", (Dq, Dk, bias), BilinearAttention, sizes),
        "paddle bilinear": ("paddle", "own_bilinear", (Dq, Dk, bias), BilinearAttention, sizes),
        "tfa bahdanau": ("tfa", "bahdanau", (Dq, Dk, U, bias), bahdanau, sizes),
        "tfa luong": ("tfa", "luong", (Dq, Dk, bias), BilinearAttention, sizes),
    }
    TRAINED |= {f"{name}, {bias}": each for name, each in trained.items()}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs(TEXTBOOKS[source])) for name, (source, *_) in TRAINED.items()],
)
def test_loaded_layer_gives_outputs_of_trained_layer(name):
    source, kind, arguments, make, sizes = TRAINED[name]
    state, run = getattr(textbook(source), kind)(generator(), *arguments)
    assert ("in_proj_weight" in state) == ("packed" in name)
    prefix = "own" if "flax own" in name else "attention" if source == "tensorflow" else ""
    layer, by_query = from_state(make(), state, source, prefix=prefix), kind != "own_multi_head" or source == "flax"
    for valid_lens in LENGTHS[: 3 if by_query else 2]:
        assert_same_outputs(layer, run, inputs_of(*sizes), valid_lens)


def test_dense_layer_from_keys_to_queries_becomes_bilinear_kernel():
    kernel = generator().normal(size=(Dk, Dq)).astype("float32")
    for source, state in (("torch", {"W.weight": kernel.T}), ("tensorflow", {"W/kernel": kernel})):
        layer = from_state(BilinearAttention(), state, source)
        assert_identical(ops.convert_to_numpy(layer.W.kernel), kernel)


def test_checkpoint_of_addons_names_the_scale_by_its_attribute():
    state, run = textbook("tfa").luong(generator(), Dq, Dk, True)
    attributes = {"memory_layer/kernel": "memory_layer/kernel:0", "scale_weight": "attention_g:0"}
    state = {f"{name}/.ATTRIBUTES/VARIABLE_VALUE": state[other] for name, other in attributes.items()}
    assert_same_outputs(from_state(BilinearAttention(), state, "tfa"), run, inputs_of(Dq, Dk, Dv))


def state_of(layer):
    """Give each weight of a layer of Keras normal numbers, and return its state."""
    random = generator()
    layer.set_weights([random.normal(size=weight.shape) / 2 for weight in layer.weights])
    return {weight.path: ops.convert_to_numpy(weight) for weight in layer.weights}


@pytest.mark.parametrize(
    ("kind", "options"),
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
def test_attention_of_keras_gives_the_same_outputs(kind, options):
    queries, keys, values = inputs_of(Dq, Dq, Dv)
    theirs = kind(**options)
    theirs.build([queries.shape, values.shape, keys.shape])
    state = state_of(theirs)
    dot = kind is keras.layers.Attention and "score_mode" not in options
    ours = DotProductAttention() if dot else AdditiveAttention(Dq)
    from_state(ours, state, "keras", prefix=theirs.name if state else "")
    for valid_lens in LENGTHS[:2]:
        mask = None if valid_lens is None else [None, np.arange(Tk) < valid_lens[:, None]]
        expected = theirs([queries, values, keys], mask=mask)
        output = ours(queries, keys, values, valid_lens)
        assert_close(ops.convert_to_numpy(output), ops.convert_to_numpy(expected), tolerance=1e-6)


@pytest.mark.parametrize(
    ("make", "ours"),
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
def test_multi_head_attention_of_keras_gives_the_same_outputs(make, ours):
    queries, keys, values = inputs_of(Dq, Dk, Dv)
    theirs = make()
    theirs.build(queries.shape, values.shape, keys.shape)
    state = state_of(theirs)
    layer = MultiHeadAttention(DotProductAttention(), **ours)
    from_state(layer, state, "keras", prefix=theirs.name)
    seen = np.arange(Tk) < LENGTHS[2][..., None]
    for mask in (None, seen):
        # Only with the scores does Keras take values of another size than keys on JAX.
        expected, _ = theirs(queries, values, keys, attention_mask=mask, return_attention_scores=True)
        output = ops.convert_to_numpy(layer(queries, keys, values, attention_mask=mask))
        assert_close(output, ops.convert_to_numpy(expected), tolerance=1e-6)


DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
on_tensorflow = run_only_on("tensorflow", reason="the lines of the document are written for one backend")


@on_tensorflow
def test_examples_of_the_document_run():
    names = {}
    blocks = [block for block in BLOCKS if "import torch" not in block]
    assert len(blocks) == len(BLOCKS) - 1
    for block in blocks:
        assert "assert" in block or "def " in block
        exec(compile(block, "docs/migrating.md", "exec"), names)


@on_tensorflow
@pytest.mark.needs("torch")
def test_torch_example_of_the_document_runs():
    (block,) = [block for block in BLOCKS if "import torch" in block]
    exec(compile(block, "docs/migrating.md", "exec"), {})


def test_document_names_every_source():
    sources = re.findall(r'^\| `"(\w+)"` \|', DOCUMENT, flags=re.MULTILINE)
    assert sorted(sources) == sorted(get_args(migrate.Source))
