"""Weights from other frameworks: our outputs beside theirs, and the document that says so."""

import importlib.util
import re
from pathlib import Path
from typing import get_args

import keras
import numpy as np
import pytest
import textbook_numpy
from backends import only_on
from keras import ops
from textbook_apart import Apart
from tolerances import assert_close

from keras_attn import (
    AdditiveAttention,
    BilinearAttention,
    DotProductAttention,
    MultiHeadAttention,
    migrate,
)
from keras_attn.migrate import from_state

B, Tq, Tk, Dq, Dk, Dv, U = 2, 3, 5, 4, 7, 6, 8
H, HIDDEN = 3, 12
TEXTBOOKS = {  # source: what the helper file that runs it imports
    "torch": "torch",
    "tensorflow": "tensorflow",
    "flax": "flax",
    "paddle": "paddle",
    "mxnet": "numpy",
}
LENGTHS = {
    "no lengths": None,
    "a length each": np.array([2, 4]),
    "a length a query": np.array([[1, 5, 3], [2, 4, 1]]),
}
PREFIX = {"tensorflow": "attention"}
every_length = pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)
every_source = pytest.mark.parametrize("source", TEXTBOOKS)
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])


def textbook(source):
    """Return the helper file that runs the textbook's layers in a framework."""
    if importlib.util.find_spec(TEXTBOOKS[source]) is None:
        pytest.skip(f"{TEXTBOOKS[source]} comes with the extra [backends]")
    if source == "paddle":
        return Apart("textbook_paddle")
    return importlib.import_module(f"textbook_{TEXTBOOKS[source]}")


def generator():
    return np.random.default_rng(1)


def inputs_of(*sizes):
    """Return queries, keys and values of these sizes."""
    random, lengths = np.random.default_rng(2), (Tq, Tk, Tk)
    return [random.normal(size=(B, t, size)).astype("float32") for t, size in zip(lengths, sizes, strict=True)]


def assert_same_outputs(layer, run, inputs, valid_lens):
    output = ops.convert_to_numpy(layer(*inputs, valid_lens))
    assert_close(output, np.asarray(run(*inputs, valid_lens), "float32"), tolerance=1e-6)


@every_length
@every_source
def test_the_textbooks_additive_attention(source, valid_lens):
    state, run = textbook(source).additive(generator(), Dq, Dk, U)
    layer = from_state(AdditiveAttention(U), state, source, prefix=PREFIX.get(source, ""))
    assert_same_outputs(layer, run, inputs_of(Dq, Dk, Dv), valid_lens)


@every_length
@every_source
def test_the_textbooks_dot_product_attention(source, valid_lens):
    state, run = textbook(source).dot_product(generator())
    layer = from_state(DotProductAttention(), state, source)
    assert_same_outputs(layer, run, inputs_of(Dq, Dq, Dv), valid_lens)


@with_and_without_bias
@every_length
@every_source
def test_the_textbooks_multi_head_attention(source, valid_lens, bias):
    state, run = textbook(source).multi_head(generator(), Dq, Dk, Dv, HIDDEN, H, bias)
    layer = MultiHeadAttention(DotProductAttention(), H, HIDDEN // H, output_dim=HIDDEN, use_bias=bias)
    layer = from_state(layer, state, source, prefix=PREFIX.get(source, ""))
    assert_same_outputs(layer, run, inputs_of(Dq, Dk, Dv), valid_lens)


@every_source
def test_square_kernels_are_not_turned_round(source):
    state, run = textbook(source).additive(generator(), U, U, U)
    layer = from_state(AdditiveAttention(U), state, source, prefix=PREFIX.get(source, ""))
    inputs = inputs_of(U, U, Dv)
    assert_same_outputs(layer, run, inputs, None)
    layer.W_q.kernel.assign(np.transpose(ops.convert_to_numpy(layer.W_q.kernel)))
    with pytest.raises(AssertionError, match="Not equal"):
        assert_same_outputs(layer, run, inputs, None)


@with_and_without_bias
@pytest.mark.parametrize("valid_lens", [None, LENGTHS["a length each"]], ids=["no lengths", "a length each"])
@pytest.mark.parametrize("sizes", [(HIDDEN, HIDDEN, HIDDEN), (HIDDEN, Dk, Dv)], ids=["packed", "separate"])
def test_multi_head_attention_of_torch(sizes, valid_lens, bias):
    state, run = textbook("torch").own_multi_head(generator(), *sizes, H, bias)
    assert ("in_proj_weight" in state) == (sizes[1] == HIDDEN)
    layer = from_state(MultiHeadAttention(DotProductAttention(), H, use_bias=bias), state, "torch")
    assert_same_outputs(layer, run, inputs_of(*sizes), valid_lens)


@with_and_without_bias
@every_length
def test_multi_head_attention_of_flax(valid_lens, bias):
    state, run = textbook("flax").own_multi_head(generator(), Dq, Dk, Dv, H, HIDDEN, 10, bias)
    layer = MultiHeadAttention(DotProductAttention(), H, HIDDEN // H, output_dim=10, use_bias=bias)
    layer = from_state(layer, state, "flax", prefix="own")
    assert_same_outputs(layer, run, inputs_of(Dq, Dk, Dv), valid_lens)


@with_and_without_bias
@pytest.mark.parametrize("valid_lens", [None, LENGTHS["a length each"]], ids=["no lengths", "a length each"])
def test_multi_head_attention_of_paddle(valid_lens, bias):
    state, run = textbook("paddle").own_multi_head(generator(), HIDDEN, Dk, Dv, H, bias)
    layer = from_state(MultiHeadAttention(DotProductAttention(), H, use_bias=bias), state, "paddle")
    assert_same_outputs(layer, run, inputs_of(HIDDEN, Dk, Dv), valid_lens)


@with_and_without_bias
@every_length
@pytest.mark.parametrize("source", ["torch", "paddle"])
def test_bilinear_layers(source, valid_lens, bias):
    state, run = textbook(source).own_bilinear(generator(), Dq, Dk, bias)
    layer = from_state(BilinearAttention(), state, source)
    assert_same_outputs(layer, run, inputs_of(Dq, Dk, Dv), valid_lens)


def test_a_linear_layer_from_keys_to_queries():
    state, run = textbook("torch").linear_bilinear(generator(), Dq, Dk)
    inputs = inputs_of(Dq, Dk, Dv)
    assert_same_outputs(from_state(BilinearAttention(), state, "torch"), run, inputs, None)
    turned = {"W/kernel": state["W.weight"].T}
    assert_same_outputs(from_state(BilinearAttention(), turned, "tensorflow"), run, inputs, None)


@pytest.mark.parametrize("normalize", [False, True])
@every_length
def test_bahdanau_attention_of_addons(valid_lens, normalize):
    state, run = textbook_numpy.bahdanau(generator(), Dq, Dk, U, normalize)
    layer = from_state(AdditiveAttention(U, normalize=normalize), state, "tfa")
    assert_same_outputs(layer, run, inputs_of(Dq, Dk, Dv), valid_lens)


@pytest.mark.parametrize("scaled", [False, True])
@every_length
def test_luong_attention_of_addons(valid_lens, scaled):
    state, run = textbook_numpy.luong(generator(), Dq, Dk, scaled)
    layer = from_state(BilinearAttention(), state, "tfa")
    assert_same_outputs(layer, run, inputs_of(Dq, Dk, Dv), valid_lens)


def test_a_checkpoint_of_addons_calls_the_scale_otherwise():
    state, run = textbook_numpy.luong(generator(), Dq, Dk, True)
    attributes = {"memory_layer/kernel": "memory_layer/kernel:0", "scale_weight": "attention_g:0"}
    state = {f"{name}/.ATTRIBUTES/VARIABLE_VALUE": state[other] for name, other in attributes.items()}
    assert_same_outputs(from_state(BilinearAttention(), state, "tfa"), run, inputs_of(Dq, Dk, Dv), None)


@with_and_without_bias
@every_length
def test_multi_head_attention_of_addons(valid_lens, bias):
    state, run = textbook_numpy.addons_multi_head(generator(), Dq, Dk, Dv, H, 5, 10, bias)
    layer = MultiHeadAttention(DotProductAttention(), H, 5, output_dim=10, use_bias=bias)
    assert_same_outputs(from_state(layer, state, "tfa"), run, inputs_of(Dq, Dk, Dv), valid_lens)


def state_of(layer):
    """Give each weight of a layer of Keras normal numbers, and return its state."""
    random = generator()
    layer.set_weights([random.normal(size=weight.shape) / 2 for weight in layer.weights])
    return {weight.path: ops.convert_to_numpy(weight) for weight in layer.weights}


@pytest.mark.parametrize("masked", [False, True])
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
def test_attention_of_keras(kind, options, masked):
    queries, keys, values = inputs_of(Dq, Dq, Dv)
    theirs = kind(**options)
    theirs.build([queries.shape, values.shape, keys.shape])
    state = state_of(theirs)
    dot = kind is keras.layers.Attention and "score_mode" not in options
    ours = DotProductAttention() if dot else AdditiveAttention(Dq)
    from_state(ours, state, "keras", prefix=theirs.name if state else "")
    valid_lens = LENGTHS["a length each"] if masked else None
    mask = [None, np.arange(Tk) < valid_lens[:, None]] if masked else None
    expected = theirs([queries, values, keys], mask=mask)
    output = ours(queries, keys, values, valid_lens)
    assert_close(ops.convert_to_numpy(output), ops.convert_to_numpy(expected), tolerance=1e-6)


@with_and_without_bias
@pytest.mark.parametrize(
    ("make", "ours"),
    [
        (
            lambda bias: keras.layers.MultiHeadAttention(H, 5, value_dim=9, output_shape=10, use_bias=bias),
            {"num_heads": H, "key_dim": 5, "value_dim": 9, "output_dim": 10},
        ),
        (
            lambda bias: keras.layers.GroupQueryAttention(5, 6, 2, use_bias=bias),
            {"num_heads": 6, "key_dim": 5, "num_kv_heads": 2},
        ),
    ],
    ids=["all heads", "groups"],
)
def test_multi_head_attention_of_keras(make, ours, bias):
    queries, keys, values = inputs_of(Dq, Dk, Dv)
    theirs = make(bias)
    theirs.build(queries.shape, values.shape, keys.shape)
    state = state_of(theirs)
    layer = MultiHeadAttention(DotProductAttention(), **ours, use_bias=bias)
    from_state(layer, state, "keras", prefix=theirs.name)
    seen = np.arange(Tk) < LENGTHS["a length a query"][..., None]
    for mask in (None, seen):
        # Only with the scores does Keras take values of another size than keys on JAX.
        expected, _ = theirs(queries, values, keys, attention_mask=mask, return_attention_scores=True)
        output = ops.convert_to_numpy(layer(queries, keys, values, attention_mask=mask))
        assert_close(output, ops.convert_to_numpy(expected), tolerance=1e-6)


DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
on_tensorflow = only_on("tensorflow", reason="the lines of the document are written for one backend")


@on_tensorflow
def test_the_lines_of_the_document_hold():
    names = {}
    blocks = [block for block in BLOCKS if "import torch" not in block]
    assert len(blocks) == len(BLOCKS) - 1
    for block in blocks:
        assert "assert" in block or "def " in block
        exec(compile(block, "docs/migrating.md", "exec"), names)


@on_tensorflow
def test_the_torch_example_of_the_document_holds():
    pytest.importorskip("torch", reason="torch comes with the extra [backends]")
    (block,) = [block for block in BLOCKS if "import torch" in block]
    exec(compile(block, "docs/migrating.md", "exec"), {})


def test_the_document_names_every_source():
    sources = re.findall(r'^\| `"(\w+)"` \|', DOCUMENT, flags=re.MULTILINE)
    assert sorted(sources) == sorted(get_args(migrate.Source))


def test_the_module_offers_one_name():
    assert migrate.__all__ == ["from_state"]
