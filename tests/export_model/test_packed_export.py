"""A model of packed texts: its file gives each text what the model gives it alone, in every lowering."""

import keras
import numpy as np
import pytest
from unchecked_export import UncheckedExport

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention
from keras_attn_export import export_model
from keras_attn_export._lowering_names import ADAPTIVE_GPU, LOWERINGS

TEXTS = (3, 1, 4)
IDS = np.repeat([[5, 0, 2]], TEXTS, axis=1).astype("int32")


def packing():
    x, ids = keras.Input((None, 8), name="x"), keras.Input((None,), dtype="int32", name="segment_ids")
    heads = MultiHeadAttention(DotProductAttention(), 2, name="heads")(x, x, x, segment_ids=ids, use_causal_mask=True)
    added = AdditiveAttention(6, name="added")(heads, heads, heads, segment_ids=ids)
    return keras.Model([x, ids], {"output": added})


def packed():
    return np.random.default_rng(0).normal(size=(1, sum(TEXTS), 8)).astype("float32")


def one_by_one(answer):
    """Answers for the texts, each given alone as the only one in a sequence, one behind the other."""
    texts = np.split(packed(), np.cumsum(TEXTS)[:-1], axis=1)
    return np.concatenate(
        [answer({"x": each, "segment_ids": np.zeros(each.shape[:2], "int32")}) for each in texts], axis=1
    )


@pytest.mark.slow
def test_packed_texts_equal_single_texts_in_every_lowering(tmp_path):
    traced = UncheckedExport(packing())
    expected = one_by_one(lambda inputs: traced.compute_expected(inputs)["output"])
    for lowering, large in [*((each, False) for each in (*LOWERINGS, ADAPTIVE_GPU)), ("adaptive", True)]:
        file = traced.write(tmp_path, lowering, large=large)
        found = file.run({"x": packed(), "segment_ids": IDS})["output"]
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_exported_bundle_takes_packed_texts(tmp_path):
    bundle = export_model(packing(), tmp_path / "bundle")
    found = bundle.run({"x": packed(), "segment_ids": IDS})["output"]
    np.testing.assert_allclose(found, one_by_one(lambda inputs: bundle.run(inputs)["output"]), atol=1e-5)
