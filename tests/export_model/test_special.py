"""Parity errors name case, operator and layer; sums that Keras computes as a bias along the wrong axis."""

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
    """In the file `Min` replaces `Max`."""

    def save_with_fault(traced, path):
        for node in traced.model.graph.node:
            if node.op_type == "Max":
                node.op_type = "Min"
        save_model(traced, path)

    save_model = float32_file.save_model
    monkeypatch.setattr(float32_file, "save_model", save_with_fault)
    x = keras.Input((2,), dtype="int32", name="x")
    model = keras.Model(x, layers.Maximum(name="floor")([x, ops.absolute(x)]))
    with pytest.raises(ParityError) as caught:
        export_model(model, tmp_path / "bundle", sample_inputs=np.zeros((3, 2), "int32"))
    message = str(caught.value)
    assert f"in case `{SPECIAL}`" in message
    assert "It begins in `Min` of layer `floor`." in message


@pytest.mark.parametrize(
    ("x", "y", "is_wrong"),
    [((5, 5), (5, 1), True), ((5, 4), (5, 1), False), ((5, 5), (1, 5), False), ((2, 5, 5), (1, 5, 1), True)],
)
def test_summand_that_keras_adds_as_a_bias_is_detected(x, y, is_wrong):
    summand = np.arange(np.prod(y), dtype="float32").reshape(y)
    with detect_wrong_biases() as detections:
        sums = ops.add(np.zeros(x, "float32"), summand)
    assert detections == [is_wrong]
    assert np.array_equal(sums, np.zeros(x) + summand) is not is_wrong, "this version of Keras adds correctly"


def test_sizes_with_a_wrong_bias_are_no_case():
    x, y = keras.Input((3,), name="x"), keras.Input((1,), name="y")  # three features, as case `base` has rows
    golden = generate_cases(keras.Model([x, y], x + y))
    assert {name for name, reason in golden.refusals.items() if "summand along the wrong axis" in reason} == {"base"}
    static_golden = generate_cases(keras.Model(z := keras.Input(batch_shape=(3, 3)), z + z[:, :1]))
    assert not static_golden.refusals  # its graph adds the bias along the same axis
