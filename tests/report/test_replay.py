"""Decoding and comparing golden cases in the script of a live page, beside `verify.py`."""

import json
import math

import numpy as np
import pytest
from node import node

from keras_attn_export._report.page import ASSETS
from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import Case

pytestmark = [pytest.mark.nightly, pytest.mark.needs("node")]


def floats(*values, dtype="float32"):
    return np.array(values, dtype)


# A case whose inputs are the outputs of a session is a comparison that fits in one file.
SCRIPT = """
import { readFileSync } from 'node:fs'
const { compare, numbers, readCases } = await import(process.argv[1])
const cases = await readCases(new Uint8Array(readFileSync(process.argv[2])))
const plain = (_, value) => typeof value === 'bigint' || Math.abs(value) === Infinity ? String(value) : value
console.log(JSON.stringify({
  rows: cases.flatMap((each) => compare(each, each.inputs, JSON.parse(process.argv[3]))),
  inputs: cases.map(({ inputs }) => [...inputs].map(([name, { dtype, shape, data }]) =>
    [name, dtype, shape, [...data]])),
  rounding: cases.map(({ rounding }) => [...rounding.values()].map((array) => [...numbers(array)])),
}, plain))
"""


def answer(file, tolerance):
    script = (ASSETS / "replay.mjs").as_uri()
    done = node("--input-type=module", "--eval", SCRIPT, script, file, json.dumps(tolerance))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def one(expected, actual, rounding=None):
    return Case("base", {"out": actual}, {"out": expected}, {} if rounding is None else {"out": rounding})


NAN, INF = np.nan, np.inf
CHANNELS = np.array([[1e6, 0.5, 0.001], [2e6, 0.25, 0.002], [1e-3, 1e-4, 1e-5]])
FILLED = np.array([[1.0, -1e9, 0.1], [-1e9 + 300, 2.0, 0.2], [-1e9, -1e9 - 80, 0.3]])
COMPARED = {
    "no columns": one(np.zeros((3, 0), "float32"), np.zeros((3, 0), "float32")),
    "shape": one(floats(1, 2), floats(1)),
    "dtype": one(floats(1), floats(1, dtype="float64")),
    "wrong number": one(floats(1), floats(1.00123)),
    "channels": one(CHANNELS, CHANNELS * (1 + 1e-5)),
    "column order": one(np.asfortranarray(CHANNELS.reshape(3, 1, 3)), CHANNELS.reshape(3, 1, 3) + 1e-6),
    "fills": one(FILLED, FILLED + 1e-5),
    "same nan": one(floats(1, NAN, INF, -INF), floats(1.00001, NAN, INF, -INF)),
    "nan is number": one(floats(1, NAN), floats(1, 1)),
    "other infinity": one(floats(1, INF), floats(1, -INF)),
    "minus zero": one(floats(0.0, 1), floats(-0.0, 1)),
    "half": one(floats(60000, 1e-7, 1, dtype="float16"), floats(-60000, 0, 1.001, dtype="float16")),
    "int64": one(np.array([2**62, -(2**63)]), np.array([2**62 + 1, -(2**63)])),
    "strings": one(np.array(["a", "長さ", ""], object), np.array(["a", "長さ", "𝄞"], object)),
    "booleans": one(np.array([True, False]), np.array([True, False])),
    "rounding": one(floats([1, 1, 1]), floats([1.0009, 1.0009, 1.002]), np.array([[1e-3, 0, 1e-3]])),
    "ties": one(np.array([1, 2, 3]), np.array([1, 7, 3]), np.array([False, True, True])),
    "names": Case("base", {"2": floats(1), "extra": np.array(3)}, {"10": floats(1), "2": floats(1)}, {}),
}


@pytest.mark.parametrize("tolerance", [{"relative": 1e-5, "absolute": 1e-6}, {"relative": 0, "absolute": 0.0}], ids=str)
def test_comparison_in_javascript_equals_that_of_python(tmp_path, tolerance):
    verify.save_cases(tmp_path / "x.npz", [case._replace(name=name) for name, case in COMPARED.items()])
    cases = verify.load_cases(tmp_path / "x.npz")
    rows = [row for case in cases for row in verify.compare(case, case.inputs, tolerance)]
    wanted = [{key: row[key] for key in ("case", "name", "of_limit", "problem")} for row in rows]
    for row in wanted:
        row["of_limit"] = "Infinity" if math.isinf(row["of_limit"]) else row["of_limit"]
    assert answer(tmp_path / "x.npz", tolerance)["rows"] == wanted


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_every_dtype_are_decoded(tmp_path, save):
    numeric = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    arrays = {dtype: np.array([[0, 1, 1], [1, 0, 1]], dtype) for dtype in [*numeric, "float32", "float64", "bool"]}
    arrays |= {f"by column {dtype}": np.asfortranarray(array) for dtype, array in arrays.items()}
    arrays |= {"長さ/ü": np.float32(-1.5), "empty": np.zeros((0, 2)), "text": np.array([["a\0b", ""], ["𝄞 two", "x"]])}
    save(tmp_path / "x.npz", cases=np.array(["base"]), **{f"0/inputs/{name}": array for name, array in arrays.items()})
    (found,) = answer(tmp_path / "x.npz", {"relative": 0, "absolute": 0})["inputs"]
    for (name, dtype, shape, data), (wanted, array) in zip(found, arrays.items(), strict=True):
        kind = "string" if array.dtype.kind == "U" else str(array.dtype)
        assert (name, dtype, shape) == (wanted, kind, list(array.shape))
        assert data == [str(each) if "int64" in kind else each for each in array.ravel().tolist()]


def test_rounding_limits_in_javascript_equal_those_of_python(tmp_path):
    steps = np.array([-32768, *range(-2200, 2048)], "int16")  # from zero to infinity
    arrays = {"cases": np.array(["base"]), "0/outputs/out": np.zeros(steps.shape), "0/rounding/out": steps}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    (((sizes,),),) = [answer(tmp_path / "x.npz", {"relative": 0, "absolute": 0})["rounding"]]
    assert [float(size) for size in sizes] == verify.load_cases(tmp_path / "x.npz")[0].rounding["out"].tolist()
