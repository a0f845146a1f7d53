"""Weights beyond the 2 GiB of one protobuf are external data, and everything else stays as it is."""

import keras
import numpy as np
import onnx
import pytest
from export_models import dict_inputs_and_outputs, implicit_mask_and_encoders
from keras import layers

from keras_attn import AdditiveAttention
from keras_attn_export import export_model, load_bundle, verify_bundle
from keras_attn_export._tracing import large_weights


@pytest.mark.parametrize("opset", [pytest.param(18, marks=pytest.mark.out_of_turn), 24])
def test_weights_outside_the_file(opset, tmp_path, monkeypatch):
    monkeypatch.setattr(large_weights, "LIMIT", 100)
    monkeypatch.setattr(large_weights, "LARGE", 200)
    bundle = export_model(implicit_mask_and_encoders(), tmp_path / "bundle", opset=opset)
    assert bundle.report.passed
    model = onnx.load(bundle.path / "model.onnx", load_external_data=False)
    outside = [tensor for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    assert len(outside) >= 5
    assert all(np.prod(tensor.dims) * 4 >= 200 for tensor in outside)
    assert {value.name for value in model.graph.input} == {"ids"}
    assert "model.onnx.data" in bundle.manifest["sha256"]
    assert verify_bundle(bundle.path).passed


def test_small_weights_stay_inside(tmp_path):
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle")
    assert not (bundle.path / "model.onnx.data").exists()


@pytest.mark.large
def test_a_model_of_more_than_two_gib(tmp_path):
    rows, size = 550_000, 1000  # 2.2 GB of float32
    ids = keras.Input((None,), dtype="int32", name="ids")
    lens = keras.Input((), dtype="int32", name="valid_lens")
    table = layers.Embedding(rows, size, embeddings_initializer="zeros", name="table")
    embedded = table(ids)
    model = keras.Model([ids, lens], AdditiveAttention(8, name="attention")(embedded, embedded, embedded, lens))
    table.embeddings.assign(np.random.default_rng(0).standard_normal((rows, size), dtype=np.float32))
    bundle = export_model(model, tmp_path / "bundle")
    assert (bundle.path / "model.onnx.data").stat().st_size > 2**31
    assert (bundle.path / "model.onnx").stat().st_size < 2**20
    inputs = {"ids": np.array([[0, rows - 1, 5]], "int32"), "valid_lens": np.array([2], "int32")}
    outputs = load_bundle(bundle.path).run(inputs)
    np.testing.assert_allclose(outputs["attention"], model([inputs["ids"], inputs["valid_lens"]]), rtol=1e-5, atol=1e-6)
