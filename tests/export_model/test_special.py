"""Mismatches in an export: the error names case, operator and layer; sums that Keras takes for a bias."""

import keras
import numpy as np
import pytest
from golden_case_helpers import generate_cases
from keras import layers, ops

from keras_attn_export import ParityError, export_model
from keras_attn_export._export import float32_file
from keras_attn_export._golden_cases.special_values import SPECIAL
from keras_attn_export._private_api.keras_internals import detect_wrong_biases


def test_mismatch_names_case_operator_and_layer(tmp_path, monkeypatch):
    """The file takes -1 for 0, as handlers of tf2onnx did that truncate."""

    def write_wrongly(traced, path):
        for node in traced.model.graph.node:
            if node.op_type == "Max":
                node.op_type = "Min"
        written(traced, path)

    written = float32_file.save_model
    monkeypatch.setattr(float32_file, "save_model", write_wrongly)
    x = keras.Input((2,), dtype="int32", name="x")
    model = keras.Model(x, layers.Maximum(name="floor")([x, ops.absolute(x)]))
    with pytest.raises(ParityError) as caught:
        export_model(model, tmp_path / "bundle", sample_inputs=np.zeros((3, 2), "int32"))
    said = str(caught.value)
    assert f"in case `{SPECIAL}`" in said
    assert "It begins in `Min` of layer `floor`." in said


@pytest.mark.parametrize(
    ("x", "y", "mistaken"),
    [((5, 5), (5, 1), True), ((5, 4), (5, 1), False), ((5, 5), (1, 5), False), ((2, 5, 5), (1, 5, 1), True)],
)
def test_summand_that_keras_takes_for_a_bias_is_detected(x, y, mistaken):
    summand = np.arange(np.prod(y), dtype="float32").reshape(y)
    with detect_wrong_biases() as found:
        sums = ops.add(np.zeros(x, "float32"), summand)
    assert found == [mistaken]
    assert np.array_equal(sums, np.zeros(x) + summand) is not mistaken, "Keras has mended it"


def test_sizes_with_a_mistaken_bias_are_no_case():
    x, y = keras.Input((3,), name="x"), keras.Input((1,), name="y")  # as many features as the base has rows
    found = generate_cases(keras.Model([x, y], x + y))
    assert {name for name, why in found.refused.items() if "summand along the wrong axis" in why} == {"base"}
    of_known_sizes = generate_cases(keras.Model(z := keras.Input(batch_shape=(3, 3)), z + z[:, :1]))
    assert not of_known_sizes.refused  # a graph of it does the same
