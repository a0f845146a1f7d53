"""Weights from other frameworks: our outputs beside theirs, and the document that says so."""

import importlib
import re
from functools import partial
from pathlib import Path
from typing import get_args

import keras
import numpy as np
import pytest
from backends import only_on
from keras import ops
from textbook_apart import Apart
from tolerances import assert_close

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention, MultiHeadAttention, migrate
from keras_attn.migrate import from_state

B, Tq, Tk, Dq, Dk, Dv, U = 2, 3, 5, 4, 7, 6, 8
H, HIDDEN = 3, 12
TEXTBOOKS = {  # source: what the helper file that runs it imports
    "torch": "torch",
    "tensorflow": "tensorflow",
    "flax": "flax",
    "paddle": "paddle",
    "mxnet": "numpy",
    "tfa": "numpy",
}
LENGTHS = {
    "no lengths": None,
    "a length each": np.array([2, 4]),
    "a length a query": np.array([[1, 5, 3], [2, 4, 1]]),
}
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])


def textbook(source):
    """Return the helper file that runs the textbook's layers in a framework."""
    if source == "paddle":
        return Apart("textbook_paddle")
    return importlib.import_module(f"textbook_{TEXTBOOKS[source]}")


def of_source(source, *values):
    """Return a test's parameters that need what the helper file of a source imports."""
    return pytest.param(*values or (source,), marks=pytest.mark.needs(TEXTBOOKS[source]))


def generator():
    return np.random.default_rng(1)


def inputs_of(*sizes):
    """Return queries, keys and values of these sizes."""
    random, lengths = np.random.default_rng(2), (Tq, Tk, Tk)
    return [random.normal(size=(B, t, size)).astype("float32") for t, size in zip(lengths, sizes, strict=True)]


def assert_same_outputs(layer, run, inputs, valid_lens=None):
    output = ops.convert_to_numpy(layer(*inputs, valid_lens))
    assert_close(output, np.asarray(run(*inputs, valid_lens), "float32"), tolerance=1e-6)


def heads(bias, key_dim=HIDDEN // H, output_dim=HIDDEN):
    return MultiHeadAttention(DotProductAttention(), H, key_dim, output_dim=output_dim, use_bias=bias)


def own_heads(bias):
    return MultiHeadAttention(DotProductAttention(), H, use_bias=bias)


additive, sizes, large = partial(AdditiveAttention, U), (Dq, Dk, Dv), (HIDDEN, Dk, Dv)
TRAINED = {  # source; function of its helper file; its arguments; our layer; sizes of inputs
    "torch, linear from keys to queries": ("torch", "linear_bilinear", (Dq, Dk), BilinearAttention, sizes),
}
for source in [*TEXTBOOKS][:-1]:
    TRAINED[f"{source}, additive"] = (source, "additive", (Dq, Dk, U), additive, sizes)
    TRAINED[f"{source}, dot product"] = (source, "dot_product", (), DotProductAttention, (Dq, Dq, Dv))
for bias in (True, False):
    own, of_textbook = partial(own_heads, bias), partial(heads, bias)
    trained = {
        f"{s}, heads": (s, "multi_head", (*sizes, HIDDEN, H, bias), of_textbook, sizes) for s in [*TEXTBOOKS][:-1]
    }
    trained |= {
        "torch, packed": ("torch", "own_multi_head", (HIDDEN, HIDDEN, HIDDEN, H, bias), own, (HIDDEN,) * 3),
        "torch, separate": ("torch", "own_multi_head", (*large, H, bias), own, large),
        "paddle, own heads": ("paddle", "own_multi_head", (*large, H, bias), own, large),
        "flax, own": (
            "flax",
            "own_multi_head",
            (*sizes, H, HIDDEN, 10, bias),
            partial(of_textbook, output_dim=10),
            sizes,
        ),
        "torch, bilinear": ("torch", "own_bilinear", (Dq, Dk, bias), BilinearAttention, sizes),
        "paddle, bilinear": ("paddle", "own_bilinear", (Dq, Dk, bias), BilinearAttention, sizes),
        "tfa, bahdanau": ("tfa", "bahdanau", (Dq, Dk, U, bias), partial(additive, normalize=bias), sizes),
        "tfa, luong": ("tfa", "luong", (Dq, Dk, bias), BilinearAttention, sizes),
        "tfa, heads": ("tfa", "addons_multi_head", (*sizes, H, 5, 10, bias), partial(heads, bias, 5, 10), sizes),
    }
    TRAINED |= {f"{name}, {bias}": each for name, each in trained.items()}


@pytest.mark.parametrize("name", [of_source(source, name) for name, (source, *_) in TRAINED.items()])
def test_outputs_are_those_of_the_layer_that_was_trained(name):
    source, kind, arguments, make, sizes = TRAINED[name]
    state, run = getattr(textbook(source), kind)(generator(), *arguments)
    assert ("in_proj_weight" in state) == ("packed" in name)
    prefix = "own" if "flax, own" in name else "attention" if source == "tensorflow" and state else ""
    layer, by_query = from_state(make(), state, source, prefix=prefix), kind != "own_multi_head" or source == "flax"
    for valid_lens in [*LENGTHS.values()][: 3 if by_query else 2]:
        assert_same_outputs(layer, run, inputs_of(*sizes), valid_lens)


def test_a_bilinear_kernel_of_tensorflow():
    kernel = generator().normal(size=(Dk, Dq)).astype("float32")
    ours, theirs = from_state(BilinearAttention(), {"W/kernel": kernel}, "tensorflow"), BilinearAttention()
    theirs.build((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))
    theirs.W.kernel.assign(kernel)
    assert_same_outputs(ours, lambda *inputs: ops.convert_to_numpy(theirs(*inputs)), inputs_of(Dq, Dk, Dv))


def test_a_checkpoint_of_addons_calls_the_scale_otherwise():
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
def test_attention_of_keras(kind, options):
    queries, keys, values = inputs_of(Dq, Dq, Dv)
    theirs = kind(**options)
    theirs.build([queries.shape, values.shape, keys.shape])
    state = state_of(theirs)
    dot = kind is keras.layers.Attention and "score_mode" not in options
    ours = DotProductAttention() if dot else AdditiveAttention(Dq)
    from_state(ours, state, "keras", prefix=theirs.name if state else "")
    for valid_lens in (None, LENGTHS["a length each"]):
        mask = None if valid_lens is None else [None, np.arange(Tk) < valid_lens[:, None]]
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
@pytest.mark.needs("torch")
def test_the_torch_example_of_the_document_holds():
    (block,) = [block for block in BLOCKS if "import torch" in block]
    exec(compile(block, "docs/migrating.md", "exec"), {})


def test_the_document_names_every_source():
    sources = re.findall(r'^\| `"(\w+)"` \|', DOCUMENT, flags=re.MULTILINE)
    assert sorted(sources) == sorted(get_args(migrate.Source))


def test_the_module_offers_one_name():
    assert migrate.__all__ == ["from_state"]
