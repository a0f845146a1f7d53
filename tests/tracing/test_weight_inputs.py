"""Weights as graph inputs during optimization; weights of more than 2 GiB are in a second file."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers

from keras_attn import AdditiveAttention
from keras_attn_export import export_model, load_bundle, verify_bundle
from keras_attn_export._onnx import external_data
from keras_attn_export._tracing import weight_inputs


@pytest.mark.slow
@pytest.mark.parametrize("opset", [pytest.param(18, marks=pytest.mark.slow), 24])
def test_large_weights_are_stored_in_a_second_file(opset, tmp_path, monkeypatch):
    monkeypatch.setattr(external_data, "MAX_EMBEDDED_WEIGHT_BYTES", 100)
    monkeypatch.setattr(weight_inputs, "MIN_INPUT_BYTES", 200)
    ids = keras.Input((None,), dtype="int32", name="ids")
    embedded = layers.Embedding(20, 8, mask_zero=True)(ids)
    model = keras.Model(ids, layers.Dense(9)(AdditiveAttention(8)(embedded, embedded, embedded)))
    bundle = export_model(model, tmp_path / "bundle", opset=opset)
    assert bundle.report.passed
    assert bundle.report.float32_clone is None  # the model is its own float32 clone
    model = onnx.load(bundle.path / "model.onnx", load_external_data=False)
    external = [tensor for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    assert len(external) >= 4
    assert all(np.prod(tensor.dims) * 4 >= 200 for tensor in external)
    assert {value.name for value in model.graph.input} == {"ids"}
    assert "model.onnx.data" in bundle.manifest["sha256"]
    assert verify_bundle(bundle.path).passed


def test_captured_tensors_are_stored_in_the_file(tmp_path):
    x, table = keras.Input((16,), name="x"), layers.Embedding(70, 16)
    rows = table(keras.ops.arange(70))  # computed once, as common for scores of all items
    model = keras.Model(x, {"scores": keras.ops.matmul(layers.Dense(16)(x), keras.ops.transpose(rows))})
    assert rows.shape.num_elements() * 4 > weight_inputs.MIN_INPUT_BYTES
    bundle = export_model(model, tmp_path / "bundle")
    assert not (bundle.path / "model.onnx.data").exists()  # small weights stay in the model file
    batch = np.random.default_rng(0).standard_normal((3, 16)).astype("float32")
    np.testing.assert_allclose(bundle.run({"x": batch})["scores"], model(batch)["scores"], rtol=1e-4, atol=1e-6)


# This needs 18 GB, so test_converted_weights_are_stored_in_a_second_file covers other precisions with a low limit.
@pytest.mark.nightly
def test_model_of_more_than_two_gib_is_exported(tmp_path):
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
    np.testing.assert_allclose(outputs["attention"], model([inputs["ids"], inputs["valid_lens"]]), rtol=1e-5, atol=1e-5)
