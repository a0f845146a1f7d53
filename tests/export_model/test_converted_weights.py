"""The weights in an ONNX file are those of the model, also in rows that no golden case reads."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from onnx import numpy_helper

from keras_attn_export import ExportError, export_model
from keras_attn_export._export import contents
from keras_attn_export._graphs.walk import all_graphs
from keras_attn_export._precision import lower_precision

SHAPE = (20_000, 4)


class LookupCell(layers.Layer):
    """A cell that looks up its input, so that the loop reads the table."""

    state_size = output_size = SHAPE[1]

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(*SHAPE, name="table")

    def build(self, _):
        self.table.build()

    def call(self, token, states):
        new = ops.tanh(states[0] + self.table(token[:, 0]))
        return new, [new]


class MaskedDense(layers.Layer):
    """A kernel times a mask, which the converter folds into a constant that has half of the kernel's values."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

    def call(self, x):
        return ops.matmul(x, self.kernel * np.tril(np.ones(self.kernel.shape, "float32")))


def lookup(*, in_a_loop):
    ids = keras.Input((None, 1), dtype="int32", name="ids")
    if in_a_loop:
        return keras.Model(ids, layers.RNN(LookupCell())(ids))
    return keras.Model(ids, layers.Embedding(*SHAPE, name="table")(ids))


@pytest.mark.parametrize(("stage", "precision"), [(contents, "float32"), (lower_precision, "float16")])
def test_rows_that_the_conversion_damaged_are_refused(stage, precision, tmp_path, monkeypatch):
    write = stage.write

    def write_with_fault(traced, path):
        write(traced, path)
        model = onnx.load(path)
        for tensor in (each for graph in all_graphs(model.graph) for each in graph.initializer):
            if tuple(tensor.dims) == SHAPE:
                array = numpy_helper.to_array(tensor).copy()
                array[[7, 7_000, 19_998]] = 0
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        onnx.save(model, path)

    monkeypatch.setattr(stage, "write", write_with_fault)
    with pytest.raises(ExportError, match=r"weight `.*table/embeddings`: 12 of its 80,000 values are missing"):
        export_model(lookup(in_a_loop=stage is contents), tmp_path / "bundle", precision=precision)
    assert not list(tmp_path.iterdir())


def test_folded_and_tied_weights_pass(tmp_path):
    ids = keras.Input((None,), dtype="int32", name="ids")
    table = layers.Embedding(64, 32)
    x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(table(ids))
    x = layers.BatchNormalization()(layers.SeparableConv1D(32, 3, padding="same")(x))
    x = layers.BatchNormalization()(layers.Conv1D(32, 3, padding="same")(x))
    x = layers.MultiHeadAttention(4, 8)(x, x)
    model = keras.Model(ids, ops.matmul(MaskedDense()(x), ops.transpose(table.embeddings)))
    weights = export_model(model, tmp_path / "bundle").report.coverage["weights"]
    assert weights["variables"] == len(model.weights)
    assert weights["variables"] / 2 <= weights["unchanged"] < weights["variables"]
    assert 0 < weights["other_constants"] < 9
