"""Parity reports: JSON, errors, summaries and warnings."""

import json
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

from keras_attn_export import ParityError, ParityReport
from keras_attn_export._format.names import Case
from keras_attn_export._format.parity_report import ParityRow, compare_cases

TOLERANCE = {"relative": 1e-5, "absolute": 1e-6}
MATCH = ParityRow("context", "base", (2, 3), "float32", 2e-7, 1e-7, 0.5, 0, TOLERANCE, passed=True)
MISMATCH = ParityRow(
    "weights", "keys 17", (2, 3), "float32", 0.25, 0.5, 3e3, 0, TOLERANCE, False, "is outside the tolerance"
)
ABSENCE = ParityRow(
    "gone", "base", (), "int64", float("inf"), float("nan"), float("inf"), 0, TOLERANCE, False, "is missing"
)
INFINITY = replace(ABSENCE, max_abs=float("-inf"))

CONSTANT_OUTPUTS = {"a": {"varies": False}}
COVERAGE = {"inputs": {"x": {"moves": []}, "y": {"moves": None}}, "outputs": CONSTANT_OUTPUTS}


@pytest.mark.parametrize(
    "report",
    [
        ParityReport("cuda", (MATCH, MISMATCH), (MATCH, ABSENCE, INFINITY), {"batch 1": "Keras raises an error"}),
        ParityReport("cpu", ()),
        ParityReport("cpu", (MATCH,), coverage={"cases": 1, "refused": 2, "axes": {"batch": [3]}, **COVERAGE}),
    ],
    ids=["failed", "empty", "warned"],
)
def test_report_is_equal_after_a_round_trip_through_json(report):
    text = report.to_json()
    content = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert content["passed"] == report.passed
    loaded_report = ParityReport.from_json(text)
    assert loaded_report.to_json() == text
    assert repr(loaded_report) == repr(report)  # since NaN is not equal to itself


def test_parity_error_is_pickled_with_its_report():
    report = ParityReport("cpu", (MISMATCH,))
    error = pickle.loads(pickle.dumps(ParityError("Outputs differ.", report)))
    assert (type(error), str(error), error.report) == (ParityError, "Outputs differ.", report)


@pytest.mark.parametrize(
    ("rows", "saved_model_rows", "message"),
    [
        ((MATCH,), (), None),
        ((), (), "Nothing was compared"),
        (
            (MATCH, MISMATCH),
            (MATCH,),
            "ONNX output `weights` is outside the tolerance in case `keys 17` (shape (2, 3), max abs 2.5e-01, "
            "max rel 5.0e-01).",
        ),
        ((MATCH,), (MISMATCH,), "SavedModel output `weights`"),
        (tuple(replace(MISMATCH, name=f"out{i}") for i in range(5)), (), "; and 2 more in the error's `report`."),
    ],
)
def test_report_raises_unless_all_outputs_match(rows, saved_model_rows, message):
    report = ParityReport("cpu", rows, saved_model_rows)
    assert report.passed is (message is None)
    if message is None:
        report.raise_if_failed()
        return
    with pytest.raises(ParityError, match=re.escape(message)) as error:
        report.raise_if_failed()
    assert error.value.report is report
    assert "out3" not in str(error.value), "three failures are shown"


def test_summary_counts_outputs_and_cases():
    report = ParityReport("cpu", (MATCH, replace(MATCH, case="b", max_rel=3e-6)), (replace(MATCH, max_abs=5e-7),))
    opening = "all 2 outputs match over 2 cases"
    assert report.summary() == f"{opening}; largest difference 5.0e-07 absolute, 3.0e-06 relative, 0.5 of its limit"
    start = "1 of 2 outputs differ over 2 cases; of the SavedModel, 1 of 1 outputs differ; "
    assert ParityReport("cpu", (MATCH, MISMATCH), (MISMATCH,)).summary().startswith(start)
    assert ParityReport("cpu", ()).summary() == "nothing was compared"
    summary = ParityReport("cpu", (MATCH,), refused={"x_length 1": "too short"}).summary()
    assert " over 1 cases (1 more that Keras itself cannot run); " in summary


FULL_COVERAGE = {
    "cases": 9,
    "refused": 0,
    "axes": {"batch": [1, 2]},
    "inputs": {"x": {"moves": ["a"]}},
    "outputs": {"a": {"varies": True}},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"cases": 4}, "Only 4 cases could be compared."),
        ({"cases": 1, "refused": 8}, "Only 1 case could be compared; Keras itself cannot run 8 more."),
        ({"axes": {"batch": [1, 2], "W": [8]}}, "Axis `W` is dynamic, but only size 8 was compared."),
        ({"small_only": ["attend"]}, "No case is long enough for the large form of layer `attend`."),
        ({"inputs": {"x": {"moves": []}}}, "Input `x` changes no output."),
        ({"inputs": {"x": {"moves": None}}}, "Input `x` has one value in all cases"),
        ({"outputs": CONSTANT_OUTPUTS, "inputs": {"x": {"moves": []}}}, "Output `a` is the same for all inputs"),
        ({"outputs": {"a": {"varies": True, "rounding": 0.034}}}, "Rounding alone may change output `a` by 3%"),
        ({"outputs": {"a": {"varies": True, "ties": 0.34}}}, "Rounding alone decides 34% of output `a`"),
        ({"outputs": {"a": {"varies": True, "rounding_in_precision": 0.79, "seen_in_precision": 0.004}}}, None),
        (
            {"outputs": {"a": {"varies": True, "seen_in_precision": 0.115, "seen_in_case": "base"}}},
            "Precision changed output `a` by up to 0.12 of the scale of its elements, in case `base`.",
        ),
    ],
)
def test_report_warns_of_inputs_and_axes_that_were_not_tested(changes, message):
    report = ParityReport("cpu", (MATCH,), coverage=FULL_COVERAGE | changes)
    assert report.passed
    if message is None:
        assert report.warnings == ()
        report.raise_if_warned()
        return
    (warning,) = report.warnings
    assert warning.startswith(message)
    with pytest.raises(ParityError, match=re.escape(warning)) as error:
        report.raise_if_warned()
    assert error.value.report is report


def test_report_warns_of_a_precision_that_is_slower():
    precision = {"name": "int8", "size_ratio": 0.3, "time_ratio": 1.04, "timed_case": "base"}
    report = ParityReport("cpu", (MATCH,), coverage=FULL_COVERAGE, precision=precision)
    assert report.warnings == ()
    report = replace(report, precision=precision | {"time_ratio": 1.456, "float32_milliseconds": 0.2})
    assert report.warnings == ("In int8 case `base` took 1.46 times as long as in float32.",)
    report.raise_if_warned()
    assert not replace(report, precision=report.precision | {"float32_milliseconds": 0.09}).warnings


def test_compare_cases_keeps_the_order_and_refuses_a_missing_case():
    zeros, ones = np.zeros((2, 1), "float32"), np.ones((2, 1), "float32")
    cases = [Case("first", {}, {"a": zeros, "b": zeros}), Case("second", {}, {"a": ones})]
    rows = compare_cases(cases, [{"a": zeros, "b": ones}, {"a": ones}], TOLERANCE)
    passed = [("first", "a", True), ("first", "b", False), ("second", "a", True)]
    assert [(row.case, row.name, row.passed) for row in rows] == passed
    assert rows[0].shape == (2, 1)
    with pytest.raises(ValueError, match="shorter"):
        compare_cases(cases, [{}], TOLERANCE)
