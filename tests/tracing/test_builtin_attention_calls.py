"""Attention layers of Keras: lowered with outputs equal to Keras, also for fully masked queries."""

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
MultiHead = keras.layers.MultiHeadAttention
Grouped = keras.layers.GroupQueryAttention
LAYERS = {  # layer, and True if it returns weights
    "heads": (lambda: MultiHead(HEADS, 3, value_dim=5), False),
    "heads with a window and dropout": (lambda: MultiHead(HEADS, 3, sliding_window=2, dropout=0.1), False),
    "heads with scores": (lambda: MultiHead(HEADS, 3), True),
    "groups with a gate": (lambda: Grouped(3, HEADS, 2, use_gate=True), False),
    "groups with a window": (lambda: Grouped(3, HEADS, 1, sliding_window=1), False),
    "groups with scores and dropout": (lambda: Grouped(3, HEADS, 1, dropout=0.1), True),
    "products": (keras.layers.Attention, False),
    "scaled products with scores": (lambda: keras.layers.Attention(use_scale=True), True),
    "concatenated": (lambda: keras.layers.Attention(True, "concat", dropout=0.1), False),
    "additive": (lambda: keras.layers.AdditiveAttention(dropout=0.1), False),
    "additive without scale": (lambda: keras.layers.AdditiveAttention(False), True),
}
# (sequences with a mask: "q" queries, "k" keys; attention mask; causal): for all layers, and for layers with heads only
MASKS = [*product(("", "q", "k", "qk"), [None], (False, True))]
ATTENTION_MASKS = {"pairs": [("", False), ("qk", True)], "rows": [("", False), ("qk", False), ("", True)]}
ATTENTION_MASKS |= {"row": [("qk", False)], "shared": [("", False)], "heads": [("", False), ("", True), ("k", False)]}
ATTENTION_MASKS |= {"numbers": [("", False)]}
pytestmark = [  # warnings of Keras about its layers
    pytest.mark.filterwarnings(f"ignore:[\\s\\S]*{message}:UserWarning")
    for message in ("destroy the mask", "softmax over axis")
]


class SetMask(keras.layers.Layer):
    """Return the first input, with the second input as its implicit mask."""

    def call(self, inputs):
        return inputs[0] + 0.0

    def compute_mask(self, inputs, mask=None):
        return inputs[1]


def call_with_every_mask(layer, returns_weights):
    """Return a model that calls a layer with every combination of masks that it accepts."""
    shapes = {"queries_mask": (None,), "keys_mask": (None,), "pairs": (None, None), "heads": (HEADS, None, None)}
    queries, keys = (keras.Input((None, SIZE), name=name) for name in ("queries", "keys"))
    masks = {name: keras.Input(shape, dtype="bool", name=name) for name, shape in shapes.items()}
    attention_masks = {name: masks[name] for name in ("pairs", "heads")}
    attention_masks |= {
        "rows": masks["pairs"][:, :1],
        "row": masks["pairs"][:, 0][:, None],  # with a static size of 1
        "shared": masks["pairs"][0],
        "numbers": ops.where(masks["pairs"], 1.0, 0.3),
    }
    has_heads = isinstance(layer, MultiHead | Grouped)
    head_masks = [(masked, name, causal) for name, pairs in ATTENTION_MASKS.items() for masked, causal in pairs]
    outputs = {}
    for masked, name, causal in [*MASKS, *(head_masks if has_heads else [])]:
        # set for each call, since `MultiHeadAttention` removes the implicit mask
        q = SetMask()([queries, masks["queries_mask"]]) if "q" in masked else queries
        k = SetMask()([keys, masks["keys_mask"]]) if "k" in masked else keys
        options = {"use_causal_mask": causal, "return_attention_scores": returns_weights}
        if has_heads:
            result = layer(q, k, attention_mask=attention_masks.get(name), **options)
        else:
            result = layer([q, k, keys] if masked == "qk" else [q, k], **options)
        case = f"{masked or 'none'}_{name}_{causal}"
        outputs |= {case: result[0], f"{case}_scores": result[1]} if returns_weights else {case: result}
    return keras.Model([queries, keys, *masks.values()], outputs)


def draw_inputs(Tq, Tk, magnitude):
    """Return inputs of four examples: random masks, all keys masked, first keys masked, and no key masked."""
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
def trace(name):
    keras.utils.set_random_seed(0)
    build, returns_weights = LAYERS[name]
    model = call_with_every_mask(build(), returns_weights)
    for weight in model.weights:  # or all biases are 0, and all scales 1
        weight.assign(np.random.default_rng(len(weight.shape)).standard_normal(weight.shape) * 0.5)
    return UncheckedExport(model)


@pytest.mark.slow
@pytest.mark.parametrize("lowering", ["portable", "fused", "adaptive"])
@pytest.mark.parametrize("name", LAYERS)
def test_stock_attention_equals_keras_under_every_mask(name, lowering, tmp_path, monkeypatch):
    for kind in LARGE_THRESHOLDS:
        monkeypatch.setitem(LARGE_THRESHOLDS, kind, SizeThreshold(0, 20))
    traced = trace(name)
    names = [name for name in traced.signature.outputs if not name.endswith("_scores")]
    # Keras broadcasts masks (B, H, Tq, Tk) against key masks (B, 1, Tk), so that the axis of heads meets B
    supported = [name for name in names if not name.startswith("k_heads")]
    masked_calls = [call for call in traced.calls if "mask" in call.shapes]
    assert len(masked_calls) == sum("_None_" not in name for name in supported), "a key mask is a mask of pairs"
    assert len(traced.calls) == len(supported), "a call was not recognized"
    run = traced.write(tmp_path, lowering).run
    for (Tq, Tk), magnitude in {(5, 5): 1.0, (3, 7): 6.0, (7, 3): 1.0, (1, 1): 1.0}.items():
        inputs = draw_inputs(Tq, Tk, magnitude)
        outputs = run(inputs)
        for name, array in traced.compute_expected(inputs).items():
            assert_close(outputs[name], array, "float32", tolerance=1e-5 * max(1, np.abs(array).max()))


@pytest.mark.slow
def test_layer_in_plain_operators_has_its_reason_in_the_manifest(tmp_path):
    x, derived = keras.Input((3, SIZE), name="x"), type("Derived", (MultiHead,), {})(2, 4)
    derived.uncalled = MultiHead(2, 4)
    outputs = {
        "its class is derived from an attention layer of Keras": derived(x, x),
        "it attends along the axes (2,)": MultiHead(2, 4, attention_axes=(2,))(x[:, None], x[:, None]),
        "it computes in float64": DotProductAttention(dtype="float64")(x, x, x),
    }
    model = keras.Model(x, [*outputs.values()])
    for lowering, recognized in {"portable": 0, "adaptive": 2}.items():
        layers = export_model(model, tmp_path / lowering, lowering=lowering).manifest["layers"]
        forms = [layer["form"].removeprefix("plain operators: ").partition(", and ")[0] for layer in layers]
        assert forms == ["the operator `Attention`"] * recognized + [*outputs][recognized:]
