"""Score biases in exported files: additive masks, float16, and the forms of every lowering."""

import keras
import numpy as np
import pytest
from export_models import build_attention_inputs
from unchecked_export import UncheckedExport

from keras_attn import DotProductAttention, MultiHeadAttention
from keras_attn_export import export_model
from keras_attn_export._lowering_names import ADAPTIVE_GPU, LOWERINGS

LOWEST = float(np.finfo("float32").min)


def build_biased_heads():
    x, bias = keras.Input((None, 8), name="x"), keras.Input((None, None), name="bias")
    attend = MultiHeadAttention(DotProductAttention(), 2, name="attend")
    return keras.Model([x, bias], {"output": attend(x, x, x, score_bias=bias, use_causal_mask=True)})


def draw_left_padded_inputs():
    """Return inputs whose first two keys are masked by the lowest float32 as bias: all causal keys of two queries."""
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    bias = np.zeros((2, 5, 5), "float32")
    bias[:, :, :2] = LOWEST
    return {"x": x, "bias": bias}


@pytest.mark.slow
def test_added_mask_excludes_masked_keys(tmp_path):
    traced, inputs = UncheckedExport(build_biased_heads()), draw_left_padded_inputs()
    changed_inputs = {**inputs, "x": inputs["x"] + np.float32(1000) * (np.arange(5) == 4)[:, None]}
    for lowering, large in [*((name, False) for name in (*LOWERINGS, ADAPTIVE_GPU)), ("adaptive", True)]:
        file = traced.write(tmp_path, lowering, large=large)
        output = file.run(inputs)["output"]
        np.testing.assert_allclose(output, traced.compute_expected(inputs)["output"], atol=1e-5)
        np.testing.assert_array_equal(file.run(changed_inputs)["output"][:, :4], output[:, :4])


@pytest.mark.slow
def test_added_mask_in_float16_matches_keras(tmp_path):
    model, inputs = build_biased_heads(), draw_left_padded_inputs()
    bundle = export_model(model, tmp_path / "bundle", precision="float16")
    output = bundle.run(inputs)["output"]
    np.testing.assert_allclose(output, model.predict_on_batch(inputs)["output"], atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bias_in_mixed_precision_exports(dtype, tmp_path):
    policy = keras.dtype_policies.DTypePolicy("mixed_float16")
    queries, keys, _, lengths = build_attention_inputs(keys=6)
    bias = keras.Input((None, None), name="bias", dtype=dtype)
    attend = MultiHeadAttention(DotProductAttention(dtype=policy), 2, name="attend", dtype=policy)
    output = attend(queries, keys, keys, lengths, score_bias=bias)
    model = keras.Model([queries, keys, lengths, bias], {"output": keras.ops.cast(output, "float32")})
    bundle = export_model(model, tmp_path / "bundle")
    assert bundle.report.passed
