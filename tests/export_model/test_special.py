"""Golden cases that show a fault of the file, and cases left out because Keras adds along the wrong axis."""

import keras
import numpy as np
import pytest
from golden_case_helpers import generate_cases
from keras import layers, ops

from keras_attn_export import ParityError, export_model
from keras_attn_export._export import float32_file
from keras_attn_export._golden_cases.special_values import SPECIAL_VALUES
from keras_attn_export._private_api.keras_internals import detect_additions_along_wrong_axis


def test_mismatch_names_case_operator_and_layer(tmp_path, monkeypatch):
    """Write `Min` instead of `Max` to the file, so that the parity check fails."""

    def save_with_fault(traced, path):
        for node in traced.model.graph.node:
            if node.op_type == "Max":
                node.op_type = "Min"
        save_model(traced, path)

    save_model = float32_file.save_model
    monkeypatch.setattr(float32_file, "save_model", save_with_fault)
    x = keras.Input((2,), dtype="int32", name="x")
    model = keras.Model(x, layers.Maximum(name="floor")([x, ops.absolute(x)]))
    with pytest.raises(ParityError) as error_info:
        export_model(model, tmp_path / "bundle", sample_inputs=np.zeros((3, 2), "int32"))
    message = str(error_info.value)
    assert f"in case `{SPECIAL_VALUES}`" in message
    assert "It begins in `Min` of layer `floor`." in message


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "has_wrong_axis"),
    [((5, 5), (5, 1), True), ((5, 4), (5, 1), False), ((5, 5), (1, 5), False), ((2, 5, 5), (1, 5, 1), True)],
)
def test_summand_that_keras_adds_along_the_wrong_axis_is_detected(x_shape, y_shape, has_wrong_axis):
    summand = np.arange(np.prod(y_shape), dtype="float32").reshape(y_shape)
    with detect_additions_along_wrong_axis() as detections:
        sums = ops.add(np.zeros(x_shape, "float32"), summand)
    assert detections == [has_wrong_axis]
    is_wrong_sum = not np.array_equal(sums, np.zeros(x_shape) + summand)
    assert is_wrong_sum == has_wrong_axis, "this Keras adds along the right axis: limit the detection to older versions"


def test_case_with_a_sum_along_the_wrong_axis_is_left_out():
    # If n is 3, Keras adds (n, 3) + (n, 1) along the wrong axis. In the case `base`, n is 3
    x, y = keras.Input((3,), name="x"), keras.Input((1,), name="y")
    golden_cases = generate_cases(keras.Model([x, y], x + y))
    wrong_cases = {name for name, reason in golden_cases.refusals.items() if "summand along the wrong axis" in reason}
    assert wrong_cases == {"base"}
    # With static sizes, the graph and the eager call add along the same wrong axis. So the case is kept
    static_golden_cases = generate_cases(keras.Model(z := keras.Input(batch_shape=(3, 3)), z + z[:, :1]))
    assert not static_golden_cases.refusals
