"""Weights that are no normal numbers are zeros, as in TensorFlow; all others keep each bit."""

import keras
import numpy as np
import onnx
import pytest
from small_graphs import small_graph
from traced_models import run

from keras_attn_export import export_model
from keras_attn_export._graphs.simplify import simplify

PLAIN = "masked = Add (x, mask) \n y = Softmax (masked)"
RESHAPED = "masked = Add (mask, x) \n again = Reshape (masked, same) \n y = Softmax (again)"
MASK, SAME = np.float32([0, -100, -90, 0]), np.array([-1, 4])
VALUES = np.float32([[0, 0, 0, 0], [0, 20, -20, 1], [np.nan, 0, 0, 0], [-np.inf, 0, 1, -np.inf], [-100, 0, -5, -100]])


def model_of(nodes, mask=MASK):
    return small_graph(nodes, mask=mask, **({"same": SAME} if "same" in nodes else {}))


def ops(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("nodes", [PLAIN, RESHAPED])
def test_denormal_weights_become_zeros(nodes):
    model = model_of(nodes)
    before = run(model, x=VALUES)["y"]
    simplify(model)
    assert ops(model)[-3:] == ["Softmax", "Less", "Where"]
    after = run(model, x=VALUES)["y"]
    np.testing.assert_array_equal(after, np.where(before < np.finfo("float32").tiny, 0, before))
    assert after[0, 1] == 0 < after[1, 1]
    assert np.isnan(after[2]).all()


@pytest.mark.parametrize(
    ("nodes", "mask"),
    [
        (PLAIN, np.float32([0, -1e9, -np.inf, 0])),
        (PLAIN, np.float32([0, -5, 3, 0])),
        ("masked = Mul (x, mask) \n y = Softmax (masked)", MASK),
        ("y = Add (x, mask)", MASK),
    ],
)
def test_softmax_without_such_a_mask_stays(nodes, mask):
    model = model_of(nodes, mask)
    simplify(model)
    assert "Where" not in ops(model)


@pytest.mark.slow
def test_attention_with_denormal_weights_is_not_fused(tmp_path):
    """The operator would multiply by what it leaves."""
    x, mask = keras.Input((4, 6), name="x"), np.float32([[0, -100, 0, -100]] * 4)
    scores = x @ keras.ops.transpose(x, (0, 2, 1)) + mask
    bundle = export_model(keras.Model(x, keras.ops.softmax(scores) @ x), tmp_path / "bundle")
    assert ops(onnx.load(bundle.path / "model.onnx"))[-4:] == ["Softmax", "Less", "Where", "MatMul"]
