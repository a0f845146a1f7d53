"""Weights go around the optimizers, which changes nothing, and beyond the 2 GiB of one protobuf into a second file."""

from collections import Counter

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from tolerances import assert_identical
from traced_models import run, traced

from keras_attn import AdditiveAttention
from keras_attn_export import export_model, load_bundle, verify_bundle
from keras_attn_export._graphs import external_data
from keras_attn_export._graphs.onnx_file import finish
from keras_attn_export._tracing import weights


@pytest.mark.slow
@pytest.mark.parametrize("opset", [pytest.param(18, marks=pytest.mark.slow), 24])
def test_large_weights_are_stored_in_a_second_file(opset, tmp_path, monkeypatch):
    monkeypatch.setattr(external_data, "LIMIT", 100)
    monkeypatch.setattr(weights, "LARGE", 200)
    ids = keras.Input((None,), dtype="int32", name="ids")
    embedded = layers.Embedding(20, 8, mask_zero=True)(ids)
    model = keras.Model(ids, layers.Dense(9)(AdditiveAttention(8)(embedded, embedded, embedded)))
    bundle = export_model(model, tmp_path / "bundle", opset=opset)
    assert bundle.report.passed
    assert bundle.report.float32_clone is None  # it is the model itself
    model = onnx.load(bundle.path / "model.onnx", load_external_data=False)
    outside = [tensor for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    assert len(outside) >= 4
    assert all(np.prod(tensor.dims) * 4 >= 200 for tensor in outside)
    assert {value.name for value in model.graph.input} == {"ids"}
    assert "model.onnx.data" in bundle.manifest["sha256"]
    assert verify_bundle(bundle.path).passed


@pytest.mark.slow
def test_graph_is_the_same_with_weights_as_constants(tmp_path, monkeypatch):
    ids = keras.Input((6,), dtype="int32", name="ids")
    embedded = layers.Embedding(50, 16, name="table")(ids)
    attended = layers.MultiHeadAttention(2, 8, name="heads")(embedded, embedded)
    filtered = layers.Conv1D(16, 3, padding="same", name="filters")(attended)
    encoded = layers.LSTM(16, return_sequences=True, name="encoder")(filtered)
    model = keras.Model(ids, {"y": layers.Dense(16, name="head")(layers.Flatten()(encoded))})
    found = []  # with each kind of weight that the graph without it is written for
    for large in (200, 2**20):
        monkeypatch.setattr(weights, "LARGE", large)
        made = traced(model, tmp_path / str(large))
        found.append(finish(made, {"ids": ("batch", 6)}, {"y": ("batch", 16)}, 18))
    apart, constant = found
    assert {"table/embeddings", "heads/query/kernel", "filters/kernel", "head/kernel"} <= set(apart.weights)
    assert not [name for name in apart.weights if name.startswith("encoder")]
    assert not constant.weights
    ops = [Counter(node.op_type for node in each.model.graph.node) for each in found]
    assert ops[0]["LSTM"] == 1
    assert set(ops[0] - ops[1]) == set()
    assert set(ops[1] - ops[0]) <= {"Shape"}
    ids = np.random.default_rng(0).integers(0, 50, (3, 6)).astype("int32")
    ours, theirs = (run(external_data.with_weights(each.model, each.weights), ids=ids)["y"] for each in found)
    assert_identical(ours, theirs)
    np.testing.assert_allclose(ours, model(ids)["y"], rtol=1e-4, atol=1e-6)


def test_captured_tensors_are_stored_in_the_file(tmp_path):
    x, table = keras.Input((16,), name="x"), layers.Embedding(70, 16)
    rows = table(keras.ops.arange(70))  # computed now, as scores of all items often are
    model = keras.Model(x, {"scores": keras.ops.matmul(layers.Dense(16)(x), keras.ops.transpose(rows))})
    assert rows.shape.num_elements() * 4 > weights.LARGE
    bundle = export_model(model, tmp_path / "bundle")
    assert not (bundle.path / "model.onnx.data").exists()  # small weights stay inside
    given = np.random.default_rng(0).standard_normal((3, 16)).astype("float32")
    np.testing.assert_allclose(bundle.run({"x": given})["scores"], model(given)["scores"], rtol=1e-4, atol=1e-6)


# It takes 18 GB, so other precisions are left to test_converted_weights_are_stored_in_a_second_file, with a low limit.
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
