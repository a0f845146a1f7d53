"""Coverage: which inputs matter to which outputs, and which outputs vary at all."""

import keras
import numpy as np
import pytest
from export_models import additive
from keras import layers, ops

from keras_attn_export._format.names import Case
from keras_attn_export._golden_cases.coverage import compute_rounding_share, is_varied_by_cases
from keras_attn_export._options import Options
from keras_attn_export._rounding.reference import build_reference


def covered(model, samples=None):
    return build_reference(model, Options(samples=samples), lambda name: None)[1].golden.coverage


@pytest.mark.slow
def test_coverage_lists_outputs_that_each_input_moves():
    found = covered(additive())
    assert {name: known["moves"] for name, known in found["inputs"].items()} == {
        name: ["attention"] for name in ("queries", "keys", "values", "valid_lens")
    }
    assert found["outputs"]["attention"]["varies"] is True
    assert 1e-7 < found["outputs"]["attention"]["rounding"] < 1e-4
    assert found["refused"] == 0
    assert found["cases"] > 10
    assert {1, 2} < {*found["axes"]["batch"]}
    assert len(found["axes"]["queries_length"]) >= 3


def test_coverage_reports_inputs_and_outputs_without_effect():
    x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
    ids = keras.Input((None,), dtype="int32", name="ids")
    outputs = {
        "x": layers.Dense(3)(x),
        "constant": layers.Dense(2, kernel_initializer="zeros", bias_initializer="ones")(x + y),
        "ids": layers.Embedding(9, 2)(ids),
    }
    found = covered(keras.Model([x, y, ids], outputs))
    floats = {"values": {"drawn": "normal floats"}}
    assert found["inputs"] == {
        "x": {"moves": ["x_output"], **floats},
        "y": {"moves": [], **floats},
        "ids": {"moves": ["ids_output"], "ids": 9, "ids_seen": 9, "values": {"drawn": "integers -1 to 8"}},
    }
    assert {name: known["varies"] for name, known in found["outputs"].items()} == {
        "x_output": True,
        "constant": False,
        "ids_output": True,
    }


def test_output_of_one_sample_may_still_vary():
    x = keras.Input((4,), name="x")
    outputs = {"x": layers.Dense(3)(x), "constant": layers.Dense(2, kernel_initializer="zeros")(x)}
    found = covered(keras.Model(x, outputs), {"x": np.arange(4, dtype="float32")[np.newaxis]})
    assert {name: known["varies"] for name, known in found["outputs"].items()} == {"x_output": True, "constant": False}


@pytest.mark.slow
def test_coverage_reports_the_share_of_rounding():
    x = keras.Input((5,), name="x")
    noisy = x * 1e5 - x * 99999  # of which float32 keeps two digits
    found = covered(keras.Model(x, {"noisy": noisy, "clear": layers.Dense(3)(x), "whole": ops.argmax(x, -1)}))
    outputs = found["outputs"]
    assert outputs["noisy"]["rounding"] > 0.01 > 1e-4 > outputs["clear"]["rounding"]
    assert outputs["whole"]["ties"] < 0.1
    assert "rounding" not in outputs["whole"]


def test_coverage_changes_samples_if_keras_runs_them():
    """Integers of one value by others that Keras takes."""
    digit, x = keras.Input((), dtype="int32", name="digit"), keras.Input((5,), name="x")
    shown = keras.Input((1,), dtype="bool", name="shown")
    model = keras.Model([digit, x, shown], ops.where(shown, ops.one_hot(digit, 5) + x, x))
    for digits in ((4, 1, 3), (2, 2, 2)):
        samples = {"digit": np.array(digits), "x": np.ones((3, 5)), "shown": np.ones((3, 1), bool)}
        inputs = covered(model, samples)["inputs"]
        assert [known["moves"] is None for known in inputs.values()] == [False, False, True]


def case(outputs, limit=0.0):
    array = np.asarray(outputs)
    rounding = {"y": np.full(array.shape, limit)} if array.dtype.kind == "f" else {}
    return Case("case", {}, {"y": array}, rounding)


def test_share_of_rounding_is_of_the_spread_and_none_if_empty():
    assert compute_rounding_share("y", [case([[1e3, 2e3], [-1e3, 1e3]], 1.0)]) == pytest.approx(1e-3)
    assert compute_rounding_share("y", [case(np.zeros((3, 0), "float32"))]) is None


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([case([[1.0, 2.0], [1.0, 2.1]], 0.06)], False),
        ([case([[1.0, 2.0], [1.0, 2.2]], 0.06)], True),
        ([case([[1.0, 2.0]]), case([[1.0, 2.0, 3.0]])], True),
        ([case([[1.0, 1.0]]), case([[1.0, 1.0, 1.0]])], False),
        ([case([[np.nan], [np.nan]])], False),
        ([case([[np.nan], [1.0]])], True),
        ([case([[-np.inf, 1.0], [-np.inf, 1.0]])], False),
    ],
)
def test_output_varies_beyond_its_limit_alone(cases, expected):
    assert is_varied_by_cases("y", cases) is expected
