"""Keras's own attention layers: lowered with outputs equal to Keras, fully masked queries included."""

from functools import cache
from itertools import product

import keras
import numpy as np
import pytest
from keras import ops
from tolerances import assert_close
from unchecked_export import UncheckedExport

from keras_attn import DotProductAttention
from keras_attn_export import export_model
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold

SIZE, HEADS = 6, 4
heads = keras.layers.MultiHeadAttention
groups = keras.layers.GroupQueryAttention
LAYERS = {  # and whether their weights are asked for
    "heads": (lambda: heads(HEADS, 3, value_dim=5), False),
    "heads with a window and dropout": (lambda: heads(HEADS, 3, sliding_window=2, dropout=0.1), False),
    "heads with scores": (lambda: heads(HEADS, 3), True),
    "groups with a gate": (lambda: groups(3, HEADS, 2, use_gate=True), False),
    "groups with a window": (lambda: groups(3, HEADS, 1, sliding_window=1), False),
    "groups with scores and dropout": (lambda: groups(3, HEADS, 1, dropout=0.1), True),
    "products": (keras.layers.Attention, False),
    "scaled products with scores": (lambda: keras.layers.Attention(use_scale=True), True),
    "concatenated": (lambda: keras.layers.Attention(True, "concat", dropout=0.1), False),
    "additive": (lambda: keras.layers.AdditiveAttention(dropout=0.1), False),
    "additive without scale": (lambda: keras.layers.AdditiveAttention(False), True),
}
# which sequences have a mask, which mask of pairs there is, and whether keys have an order: for all layers, and
# for those with heads beside
KINDS = [*product(("", "q", "k", "qk"), [None], (False, True))]
OF_PAIRS = {"pairs": [("", False), ("qk", True)], "rows": [("", False), ("qk", False), ("", True)]}
OF_PAIRS |= {"row": [("qk", False)], "shared": [("", False)], "heads": [("", False), ("", True), ("k", False)]}
OF_PAIRS |= {"numbers": [("", False)]}
pytestmark = [  # what Keras thinks of its own layers
    pytest.mark.filterwarnings(f"ignore:[\\s\\S]*{message}:UserWarning")
    for message in ("destroy the mask", "softmax over axis")
]


class Marked(keras.layers.Layer):
    """Gives its first input the second as its mask."""

    def call(self, inputs):
        return inputs[0] + 0.0

    def compute_mask(self, inputs, mask=None):
        return inputs[1]


def under_every_mask(layer, scores):
    """A model that calls a layer under every kind of mask that it takes, with an output, or two, for each."""
    shapes = {"queries_mask": (None,), "keys_mask": (None,), "pairs": (None, None), "heads": (HEADS, None, None)}
    queries, keys = (keras.Input((None, SIZE), name=name) for name in ("queries", "keys"))
    masks = {name: keras.Input(shape, dtype="bool", name=name) for name, shape in shapes.items()}
    pairs = {name: masks[name] for name in ("pairs", "heads")}
    pairs |= {
        "rows": pairs["pairs"][:, :1],
        "row": pairs["pairs"][:, 0][:, None],  # of which the shape says that it is one
        "shared": pairs["pairs"][0],
        "numbers": ops.where(masks["pairs"], 1.0, 0.3),
    }
    has_heads = isinstance(layer, heads | groups)
    more = [(marked, name, causal) for name, entries in OF_PAIRS.items() for marked, causal in entries]
    outputs = {}
    for marked, name, causal in [*KINDS, *(more if has_heads else [])]:
        # anew for each call: `MultiHeadAttention` takes the mask off
        q = Marked()([queries, masks["queries_mask"]]) if "q" in marked else queries
        k = Marked()([keys, masks["keys_mask"]]) if "k" in marked else keys
        options = {"use_causal_mask": causal, "return_attention_scores": scores}
        if has_heads:
            result = layer(q, k, attention_mask=pairs.get(name), **options)
        else:
            result = layer([q, k, keys] if marked == "qk" else [q, k], **options)
        kind = f"{marked or 'none'}_{name}_{causal}"
        outputs |= {kind: result[0], f"{kind}_scores": result[1]} if scores else {kind: result}
    return keras.Model([queries, keys, *masks.values()], outputs)


def some_inputs(Tq, Tk, magnitude):
    """Inputs of four examples: one without keys, one whose first keys are masked, one without masks at all."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((4, length, SIZE)) for name, length in (("queries", Tq), ("keys", Tk))}
    arrays = {name: (magnitude * array).astype("float32") for name, array in arrays.items()}
    for name, shape in {"queries_mask": (Tq,), "keys_mask": (Tk,), "pairs": (Tq, Tk), "heads": (HEADS, Tq, Tk)}.items():
        mask = rng.random((4, *shape)) < 0.6
        mask[1], mask[3] = False, True
        mask[2, ..., :2] = False
        arrays[name] = mask
    return arrays


@cache
def traced(name):
    keras.utils.set_random_seed(0)
    make, scores = LAYERS[name]
    model = under_every_mask(make(), scores)
    for weight in model.weights:  # biases too, and scales that are ones
        weight.assign(np.random.default_rng(len(weight.shape)).standard_normal(weight.shape) * 0.5)
    return UncheckedExport(model)


@pytest.mark.slow
@pytest.mark.parametrize("lowering", ["portable", "fused", "adaptive"])
@pytest.mark.parametrize("name", LAYERS)
def test_stock_attention_equals_keras_under_every_mask(name, lowering, tmp_path, monkeypatch):
    for kind in LARGE_THRESHOLDS:
        monkeypatch.setitem(LARGE_THRESHOLDS, kind, SizeThreshold(0, 20))
    model = traced(name)
    outputs = [output for output in model.signature.outputs if not output.endswith("_scores")]
    supported = [output for output in outputs if not output.startswith("k_heads")]  # where axes of Keras's masks meet
    of_pairs = [output for output in supported if "_None_" not in output]
    assert sum("mask" in call.shapes for call in model.calls) == len(of_pairs), "a mask has become one of all pairs"
    assert len(model.calls) == len(supported), "a call stays as it is"
    run = model.write(tmp_path, lowering).run
    for (Tq, Tk), magnitude in {(5, 5): 1.0, (3, 7): 6.0, (7, 3): 1.0, (1, 1): 1.0}.items():
        inputs = some_inputs(Tq, Tk, magnitude)
        actual = run(inputs)
        for output, exact in model.compute_expected(inputs).items():
            assert_close(actual[output], exact, "float32", tolerance=1e-5 * max(1, np.abs(exact).max()))


@pytest.mark.slow
def test_layer_in_plain_operators_has_its_reason_in_the_manifest(tmp_path):
    x, derived = keras.Input((3, SIZE), name="x"), type("Derived", (heads,), {})(2, 4)
    derived.uncalled = heads(2, 4)
    outputs = {
        "its class is derived from an attention layer of Keras": derived(x, x),
        "it attends along the axes (2,)": heads(2, 4, attention_axes=(2,))(x[:, None], x[:, None]),
        "it computes in float64": DotProductAttention(dtype="float64")(x, x, x),
    }
    model = keras.Model(x, [*outputs.values()])
    for lowering, recognized in {"portable": 0, "adaptive": 2}.items():
        layers = export_model(model, tmp_path / lowering, lowering=lowering).manifest["layers"]
        forms = [layer["form"].removeprefix("plain operators: ").partition(", and ")[0] for layer in layers]
        assert forms == ["the operator `Attention`"] * recognized + [*outputs][recognized:]
