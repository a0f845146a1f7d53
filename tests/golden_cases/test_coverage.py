"""Coverage of golden cases: the section of the parity report that says what the golden cases exercise.

For an input, `moves` lists the outputs that depend on it, and `drawn` says how its values were drawn. For an output,
`varies` is True if its rows differ by more than their rounding limits. `rounding` is its relative rounding limit.
"""

import keras
import numpy as np
import pytest
from export_models import build_additive
from keras import layers, ops

from keras_attn_export._format.names import Case
from keras_attn_export._golden_cases.coverage import compute_relative_rounding, varies_beyond_limits
from keras_attn_export._options import Options
from keras_attn_export._rounding.reference import build_reference


def measure_coverage(model, samples=None):
    return build_reference(model, Options(samples=samples), lambda name: None)[1].golden_cases.coverage


@pytest.mark.slow
def test_coverage_lists_outputs_that_depend_on_each_input():
    coverage = measure_coverage(build_additive())
    dependent_outputs = {name: entry["moves"] for name, entry in coverage["inputs"].items()}
    assert dependent_outputs == {name: ["attention"] for name in ("queries", "keys", "values", "valid_lens")}
    assert coverage["outputs"]["attention"]["varies"] is True
    assert 1e-7 < coverage["outputs"]["attention"]["rounding"] < 1e-4
    assert coverage["refused"] == 0, "Keras ran all cases"
    assert coverage["cases"] > 10
    assert {1, 2} < {*coverage["axes"]["batch"]}
    assert len(coverage["axes"]["queries_length"]) >= 3


def test_coverage_reports_inputs_and_outputs_without_effect():
    x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
    word = keras.Input((None,), dtype="int32", name="word")
    outputs = {
        "x": layers.Dense(3)(x),
        "constant": layers.Dense(2, kernel_initializer="zeros", bias_initializer="ones")(x + y),
        "word": layers.Embedding(9, 2)(word),
    }
    coverage = measure_coverage(keras.Model([x, y, word], outputs))
    float_values = {"values": {"drawn": "normal floats"}}
    assert coverage["inputs"] == {
        "x": {"moves": ["x_output"], **float_values},
        "y": {"moves": [], **float_values},
        "word": {"moves": ["word_output"], "ids": 9, "ids_seen": 9, "values": {"drawn": "integers -1 to 8"}},
    }
    is_varied = {name: entry["varies"] for name, entry in coverage["outputs"].items()}
    assert is_varied == {"x_output": True, "constant": False, "word_output": True}


def test_coverage_of_one_sample_detects_constant_outputs():
    x = keras.Input((4,), name="x")
    outputs = {"x": layers.Dense(3)(x), "constant": layers.Dense(2, kernel_initializer="zeros")(x)}
    coverage = measure_coverage(keras.Model(x, outputs), {"x": np.arange(4, dtype="float32")[np.newaxis]})
    is_varied = {name: entry["varies"] for name, entry in coverage["outputs"].items()}
    assert is_varied == {"x_output": True, "constant": False}


@pytest.mark.slow
def test_coverage_reports_rounding_relative_to_the_scale():
    x = keras.Input((5,), name="x")
    # In float32 the two products have seven exact digits. The subtraction cancels five of these, so two remain.
    noise = x * 1e5 - x * 99999
    model = keras.Model(x, {"noise": noise, "dense": layers.Dense(3)(x), "index": ops.argmax(x, -1)})
    outputs = measure_coverage(model)["outputs"]
    assert outputs["noise"]["rounding"] > 0.01 > 1e-4 > outputs["dense"]["rounding"]
    assert outputs["index"]["ties"] < 0.1
    assert "rounding" not in outputs["index"]


def test_coverage_permutes_or_replaces_sampled_integers_and_skips_constant_booleans():
    """The entry `moves` is None if the check has no other values for an input.

    This holds for `flag`, since all its values in the samples are True.
    """
    digit, x = keras.Input((), dtype="int32", name="digit"), keras.Input((5,), name="x")
    flag = keras.Input((1,), dtype="bool", name="flag")
    model = keras.Model([digit, x, flag], ops.where(flag, ops.one_hot(digit, 5) + x, x))
    for digits in ((4, 1, 3), (2, 2, 2)):
        samples = {"digit": np.array(digits), "x": np.ones((3, 5)), "flag": np.ones((3, 1), bool)}
        coverage_by_input = measure_coverage(model, samples)["inputs"]
        assert [entry["moves"] is None for entry in coverage_by_input.values()] == [False, False, True]


def build_case(output, limit=0.0):
    """Return a case with one output. If the output is float, `limit` is the rounding limit of each element."""
    array = np.asarray(output)
    rounding = {"y": np.full(array.shape, limit)} if array.dtype.kind == "f" else {}
    return Case("case", {}, {"y": array}, rounding)


def test_rounding_is_relative_to_the_scale_and_none_if_the_output_is_empty():
    assert compute_relative_rounding("y", [build_case([[1e3, 2e3], [-1e3, 1e3]], 1.0)]) == pytest.approx(1e-3)
    assert compute_relative_rounding("y", [build_case(np.zeros((3, 0), "float32"))]) is None


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([build_case([[1.0, 2.0], [1.0, 2.1]], 0.06)], False),
        ([build_case([[1.0, 2.0], [1.0, 2.2]], 0.06)], True),
        ([build_case([[1.0, 2.0]]), build_case([[1.0, 2.0, 3.0]])], True),
        ([build_case([[1.0, 1.0]]), build_case([[1.0, 1.0, 1.0]])], False),
        ([build_case([[np.nan], [np.nan]])], False),
        ([build_case([[np.nan], [1.0]])], True),
        ([build_case([[-np.inf, 1.0], [-np.inf, 1.0]])], False),
    ],
)
def test_output_varies_only_if_rows_differ_beyond_both_limits(cases, expected):
    assert varies_beyond_limits("y", cases) is expected
