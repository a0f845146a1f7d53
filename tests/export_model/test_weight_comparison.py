"""Comparison of weights: weights in the file equal those of the model, also in rows that no golden case reads."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from onnx import numpy_helper

from keras_attn_export import ExportError, export_model
from keras_attn_export._export import float32_file
from keras_attn_export._onnx.traversal import iter_graphs
from keras_attn_export._precision import convert_precision

SHAPE = (20_000, 4)


class LookupInLoop(layers.Layer):
    def build(self, _):
        self.table = layers.Embedding(*SHAPE, name="table")

    def call(self, ids):
        return ops.fori_loop(0, 3, lambda step, total: total + self.table(ids[:, step]), ops.zeros((1, SHAPE[1])))


class MaskedDense(layers.Layer):  # the file has the masked kernel: a constant with half of the kernel's values
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

    def call(self, x):
        return ops.matmul(x, self.kernel * np.tril(np.ones(self.kernel.shape, "float32")))


class PositionTable(layers.Layer):
    def build(self, _):
        self.table = self.add_weight(shape=SHAPE, name="embeddings")

    def call(self, ids):
        return self.table[: ops.shape(ids)[1]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "precision", "layer", "rows"),
    [
        (float32_file, "float32", LookupInLoop, None),
        (float32_file, "float32", PositionTable, None),
        (convert_precision, "float16", lambda: layers.Embedding(*SHAPE), [19_998, 700, 7_000]),
        (convert_precision, "int8", lambda: layers.Embedding(*SHAPE), None),
    ],
)
def test_damaged_rows_are_refused(stage, precision, layer, rows, tmp_path, monkeypatch):
    save_model = stage.save_model

    def save_with_fault(traced, path):
        save_model(traced, path)
        model = onnx.load(path)
        for tensor in (tensor for graph in iter_graphs(model.graph) for tensor in graph.initializer):
            if tuple(tensor.dims) == SHAPE:
                array = numpy_helper.to_array(tensor).copy()
                array[[700, 7_000, 19_998]] = array[rows] if rows else 0
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        onnx.save(model, path)

    monkeypatch.setattr(stage, "save_model", save_with_fault)
    ids = keras.Input((None if layer is PositionTable else 3,), 1, dtype="int32", name="ids")
    model, samples = keras.Model(ids, layer()(ids)), {"ids": np.zeros((1, 3), "int32")}
    with pytest.raises(ExportError, match=r"damaged (weight|table) `.*/embeddings`: 1\d of its 80,000 values"):
        export_model(model, tmp_path / "bundle", precision=precision, sample_inputs=samples)


def test_frozen_original_of_a_tuned_table_passes(tmp_path):
    ids, table = keras.Input((3,), dtype="int32", name="ids"), layers.Embedding(2_000, 4)
    original = np.random.default_rng(0).normal(size=(2_000, 4)).astype("float32")
    model = keras.Model(ids, table(ids) + ops.take(original, ids, axis=0))
    table.set_weights([np.concatenate([original[:50] / 2, original[50:]])])
    weights = export_model(model, tmp_path / "bundle").report.coverage["weights"]
    assert weights == {"variables": 1, "unchanged": 1, "other_constants": 1}


@pytest.mark.slow
def test_folded_and_tied_weights_pass(tmp_path):
    ids = keras.Input((None,), dtype="int32", name="ids")
    table = layers.ReversibleEmbedding(64, 32)
    x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(table(ids))
    x = layers.BatchNormalization()(layers.SeparableConv1D(32, 3, padding="same")(x))
    x = layers.MultiHeadAttention(4, 8)(x, x)
    model = keras.Model(ids, table(MaskedDense()(x), reverse=True))
    weights = export_model(model, tmp_path / "bundle").report.coverage["weights"]
    assert weights["variables"] == len(model.weights)
    assert weights["variables"] / 2 <= weights["unchanged"] < weights["variables"]


@pytest.mark.parametrize("precision", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
def test_lstm_gates_in_the_order_of_onnx_pass(precision, tmp_path):
    x = keras.Input((None, 40), name="x")
    model = keras.Model(x, layers.LSTM(40)(x))  # 13 KiB in float16; smaller kernels than 4 KiB are not compared
    weights = export_model(model, tmp_path / "bundle", precision=precision).report.coverage["weights"]
    assert weights == {"variables": 3, "unchanged": 0, "other_constants": 2}
