"""Packed texts: in every lowering, outputs equal those of each text in a sequence of its own."""

import keras
import numpy as np
import pytest
from unchecked_export import UncheckedExport

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention
from keras_attn_export import export_model
from keras_attn_export._lowering_names import ADAPTIVE_GPU, LOWERINGS

TEXTS = (3, 1, 4)
IDS = np.repeat([[5, 0, 2]], TEXTS, axis=1).astype("int32")


def build_packed_model():
    x, ids = keras.Input((None, 8), name="x"), keras.Input((None,), dtype="int32", name="segment_ids")
    heads = MultiHeadAttention(DotProductAttention(), 2, name="heads")(x, x, x, segment_ids=ids, use_causal_mask=True)
    output = AdditiveAttention(6, name="added")(heads, heads, heads, segment_ids=ids)
    return keras.Model([x, ids], {"output": output})


def draw_packed_texts():
    return np.random.default_rng(0).normal(size=(1, sum(TEXTS), 8)).astype("float32")


def run_texts_separately(run):
    """Return the joined outputs of the texts, each in a sequence of its own."""
    texts = np.split(draw_packed_texts(), np.cumsum(TEXTS)[:-1], axis=1)
    return np.concatenate(
        [run({"x": text, "segment_ids": np.zeros(text.shape[:2], "int32")}) for text in texts], axis=1
    )


@pytest.mark.slow
def test_packed_texts_equal_single_texts_in_every_lowering(tmp_path):
    traced = UncheckedExport(build_packed_model())
    expected = run_texts_separately(lambda inputs: traced.compute_expected(inputs)["output"])
    for lowering, large in [*((name, False) for name in (*LOWERINGS, ADAPTIVE_GPU)), ("adaptive", True)]:
        file = traced.write(tmp_path, lowering, large=large)
        output = file.run({"x": draw_packed_texts(), "segment_ids": IDS})["output"]
        np.testing.assert_allclose(output, expected, atol=1e-5)


@pytest.mark.slow
def test_bundle_runs_packed_texts(tmp_path):
    bundle = export_model(build_packed_model(), tmp_path / "bundle")
    output = bundle.run({"x": draw_packed_texts(), "segment_ids": IDS})["output"]
    expected = run_texts_separately(lambda inputs: bundle.run(inputs)["output"])
    np.testing.assert_allclose(output, expected, atol=1e-5)
