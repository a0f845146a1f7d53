"""Files of golden cases: saving, loading, and refused files."""

import numpy as np
import pytest

from keras_attn_export import BundleError
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import Case


def make_array(*values, dtype="float32"):
    return np.array(values, dtype)


def test_stored_rounding_limits_are_upper_bounds(tmp_path):
    float_limits = np.array([[0, 1e-31, 1e-7], [3e-5, 0.5, 700.0]])
    tie_marks = np.array([True, False])  # limits of an integer output: True for an element that rounding can change
    outputs = {"floats": np.ones((2, 3), "float32"), "integers": np.ones(2, int)}
    rounding_limits = {"floats": float_limits, "integers": tie_marks}
    save_cases(tmp_path / "cases.npz", [Case("base", {}, outputs, rounding_limits)])
    (case,) = load_cases(tmp_path / "cases.npz")
    assert case.rounding_limits["floats"][0, 0] == 0
    ratios = case.rounding_limits["floats"].reshape(-1)[1:] / float_limits.reshape(-1)[1:]
    assert np.all((ratios >= 1 - 1e-12) & (ratios < 1.4143))  # limits are rounded up to a power of sqrt(2)
    assert case.rounding_limits["integers"].tolist() == [True, False]


def test_golden_cases_are_equal_after_saving_and_loading(tmp_path):
    inputs = {
        "flag": np.array([True, False]),
        "long": np.array(2**62),
        "half": make_array(1, np.nan, dtype="float16"),
        "empty": np.zeros((0, 3), "float32"),
        "by column": np.zeros((2, 3), order="F"),
        "file": np.array([[1]], "int8"),
    }
    names = ("block/attention", "0/inputs/flag", "weights.npy", "Größe, x y", "cases", "")
    outputs = {name: make_array(number) for number, name in enumerate(names)}
    cases = [Case(f"case {index} 長さ", {**inputs, "index": np.array(index)}, outputs) for index in range(12)]
    save_cases(tmp_path / "cases.npz", cases)
    loaded_cases = load_cases(tmp_path / "cases.npz")
    assert [case.name for case in loaded_cases] == [case.name for case in cases]
    for (_, *case_fields), (_, *loaded_fields) in zip(cases, loaded_cases, strict=True):
        for expected, actual in zip(case_fields, loaded_fields, strict=True):
            assert list(actual) == list(expected)
            for name, array in expected.items():
                np.testing.assert_array_equal(actual[name], array, strict=True)


FILES_WITHOUT_CASES = {
    "none": (lambda file: save_cases(file, []), "contains no golden case"),
    "pickled": (lambda file: np.savez(file, cases=np.array([{}], object)), "is not a file of golden cases"),
    "text": (lambda file: file.write_bytes(b"text"), r"is not a file of golden cases \(ValueError"),
}


@pytest.mark.parametrize(("write", "message"), FILES_WITHOUT_CASES.values(), ids=FILES_WITHOUT_CASES)
def test_files_without_golden_cases_are_refused(tmp_path, write, message):
    write(tmp_path / "cases.npz")
    with pytest.raises(BundleError, match=message):
        load_cases(tmp_path / "cases.npz")
