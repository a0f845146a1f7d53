"""Golden cases in a file."""

import numpy as np
import pytest

from keras_attn_export import BundleError
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import Case


def floats(*values, dtype="float32"):
    return np.array(values, dtype)


def test_rounding_is_saved_without_loss_of_its_bound(tmp_path):
    sizes = np.array([[0, 1e-31, 1e-7], [3e-5, 0.5, 700.0]])
    outputs = {"out": np.ones((2, 3), "float32"), "top": np.ones(2, int)}
    rounding = {"out": sizes, "top": np.array([True, False])}
    save_cases(tmp_path / "cases.npz", [Case("base", {}, outputs, rounding)])
    (read,) = load_cases(tmp_path / "cases.npz")
    assert read.rounding["out"][0, 0] == 0
    share = read.rounding["out"].reshape(-1)[1:] / sizes.reshape(-1)[1:]
    assert np.all((share >= 1 - 1e-12) & (share < 1.4143))
    assert read.rounding["top"].tolist() == [True, False]


def test_golden_cases_are_equal_after_saving_and_loading(tmp_path):
    inputs = {
        "flag": np.array([True, False]),
        "long": np.array(2**62),
        "half": floats(1, np.nan, dtype="float16"),
        "empty": np.zeros((0, 3), "float32"),
        "by column": np.zeros((2, 3), order="F"),
        "file": np.array([[1]], "int8"),
    }
    names = ("block/attention", "0/inputs/flag", "weights.npy", "Größe, x y", "cases", "")
    outputs = {name: floats(number) for number, name in enumerate(names)}
    cases = [Case(f"case {index} 長さ", {**inputs, "index": np.array(index)}, outputs) for index in range(12)]
    save_cases(tmp_path / "cases.npz", cases)
    read = load_cases(tmp_path / "cases.npz")
    assert [case.name for case in read] == [case.name for case in cases]
    for (_, *wanted), (_, *got) in zip(cases, read, strict=True):
        for want, have in zip(wanted, got, strict=True):
            assert list(have) == list(want)
            for name, array in want.items():
                np.testing.assert_array_equal(have[name], array, strict=True)


NO_CASES = {
    "none": (lambda file: save_cases(file, []), "contains no golden case"),
    "pickled": (lambda file: np.savez(file, cases=np.array([{}], object)), "is not a file of golden cases"),
    "text": (lambda file: file.write_bytes(b"text"), r"is not a file of golden cases \(ValueError"),
}


@pytest.mark.parametrize(("make", "said"), NO_CASES.values(), ids=NO_CASES)
def test_other_files_than_golden_cases_are_refused(tmp_path, make, said):
    make(tmp_path / "cases.npz")
    with pytest.raises(BundleError, match=said):
        load_cases(tmp_path / "cases.npz")
