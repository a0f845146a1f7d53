"""The judgement of `verify.mjs`, beside that of `verify.py`: the same rows for the same numbers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from npz_files import floats

from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import Case

pytest_plugins = ("web_fixtures",)
pytestmark = pytest.mark.web

TOLERANCE = {"relative": 1e-5, "absolute": 1e-6}


def finite(value):
    """Return rows as they come through JSON: what is not finite as JavaScript writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list) else value


def both(judge, file, cases, tolerance=TOLERANCE, lenience=1.0):
    """Return the rows of verify.py after checking that those of verify.mjs are equal, and their tables too."""
    verify.save_cases(file, cases)
    answer = judge.ask({"path": str(file), "tolerance": dict(tolerance), "lenience": lenience})
    read = verify.load_cases(file)
    rows = [row for case in read for row in verify.compare(case, case.inputs, tolerance, lenience)]
    assert answer["rows"] == finite(rows)
    return rows, answer["table"]


def one(expected, actual, rounding=None):
    return Case("base", {"out": actual}, {"out": expected}, {} if rounding is None else {"out": rounding})


NAN, INF = np.nan, np.inf
CHANNELS = np.array([[1e6, 0.5, 0.001], [2e6, 0.25, 0.002], [1e-3, 1e-4, 1e-5]])
FILLED = np.array([[1.0, -1e9, 0.1], [-1e9 + 300, 2.0, 0.2], [-1e9, -1e9 - 80, 0.3]])
COMPARED = {
    "zeros": one(floats(0, 0), floats(0, 1e-3)),
    "no columns": one(np.zeros((3, 0), "float32"), np.zeros((3, 0), "float32")),
    "shape": one(floats(1, 2), floats(1)),
    "shape of a scalar": one(np.float32(1), np.ones((2, 3), "float32")),
    "dtype": one(floats(1), floats(1, dtype="float64")),
    "channels": one(CHANNELS, CHANNELS * (1 + 1e-5)),
    "one column": one(floats([3], [-2], [0.001]), floats([3], [-2.00001], [0.00101])),
    "three axes": one(CHANNELS.reshape(3, 1, 3), CHANNELS.reshape(3, 1, 3) + 1e-6),
    "fills": one(FILLED, FILLED + 1e-5),
    "infinite fills": one(np.where(FILLED < -1e8, -INF, FILLED), np.where(FILLED < -1e8, -INF, FILLED + 1e-5)),
    "many fills": one(*(np.array([value, *np.logspace(4, 40, 10)]) for value in (1.0, 1.1))),
    "small fills": one(np.array([100, 2e4, 2e4]), np.array([100.1, 2e4, 2e4])),
    "fills with scores": one(*(np.array([value, *(-1e9 + 10.0 * np.arange(12))]) for value in (1.0, 1.0001))),
    "a fill in a row of large results": one(np.array([1, 2e4, 1e6]), np.array([1.1, 2e4, 1e6])),
    "large results": one(np.array([[3e4, 5e4], [1e5, 2e4]]), np.array([[3e4, 5e4], [1e5, 2e4 + 0.5]])),
    "same nan": one(floats(1, NAN, INF, -INF), floats(1.00001, NAN, INF, -INF)),
    "nan is number": one(floats(1, NAN), floats(1, 1)),
    "number is nan": one(floats(1, 1), floats(1, NAN)),
    "other infinity": one(floats(1, INF), floats(1, -INF)),
    "nan is infinity": one(floats(NAN, 1), floats(INF, 1)),
    "minus zero": one(floats(0.0, 1), floats(-0.0, 1)),
    "half": one(floats(60000, 1e-7, 1, dtype="float16"), floats(-60000, 0, 1.001, dtype="float16")),
    "tiny half": one(floats(1e-7, 0, dtype="float16"), floats(0, 0, dtype="float16")),
    "half of other infinity": one(floats(INF, dtype="float16"), floats(-INF, dtype="float16")),
    "a hundred times the limit": one(floats(1), floats(1.00123)),
    "half is not finite": one(floats(NAN, INF, -INF, dtype="float16"), floats(NAN, INF, -INF, dtype="float16")),
    "large doubles": one(np.array([1.7e308, 1]), np.array([1.6e308, 1])),
    "int64": one(np.array([2**62, -(2**63)]), np.array([2**62 + 1, -(2**63)])),
    "uint64": one(np.array([2**64 - 1], "uint64"), np.array([2**64 - 2], "uint64")),
    "by column": one(np.asfortranarray(CHANNELS), CHANNELS.copy()),
    "by column, three axes": one(np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)), np.arange(24.0).reshape(2, 3, 4)),
    "rounding": one(floats([1, 1, 1]), floats([1.0009, 1.0009, 1.002]), np.array([[1e-3, 0, 1e-3]])),
    "tiny rounding": one(floats(0, 1e-38), floats(1e-32, 2e-38), np.array([1e-31, 1e-38])),
    "ties": one(np.array([1, 2, 3]), np.array([1, 7, 3]), np.array([False, True, True])),
    "ties and a fault": one(np.array([1, 2, 3]), np.array([0, 7, 3]), np.array([False, True, True])),
    "ties of floats": one(floats(1, 2), floats(1.5, 2.5), np.array([True, False])),
    "rounding of integers": one(np.array([1, 2]), np.array([1, 3]), np.array([1.0, 1.0])),
}


def test_rows_are_those_of_python(judge, file):
    for name, case in COMPARED.items():
        for tolerance, lenience in itertools.product((TOLERANCE, {"relative": 0, "absolute": 0.0}), (1, 4.0)):
            rows, table = both(judge, file, [case._replace(name=name)], tolerance, lenience)
            assert table.split("\n") == verify.format_rows(rows), name


def test_names_that_are_missing_or_too_many(judge, file):
    """In the order of Python's, which is that of the file also where names are numbers."""
    expected = {"10": floats(1), "2": floats([1, 2]), "gone": np.array([True])}
    rows, _ = both(
        judge, file, [Case("base", {"2": floats([1, 2]), "extra": np.array(3)}, expected), one(*[floats(1)] * 2)]
    )
    assert [row["name"] for row in rows] == ["10", "2", "gone", "extra", "out"]
    assert [row["problem"] for row in rows] == ["is missing", None, "is missing", "was not expected", None]


def test_names_are_escaped_as_python_does(judge, file):
    name = "x\nall 999 outputs match\r\t\0\x07\x1b[2J\x7f\x9b\xad\xa0\u202e\u2066\u200b\u2028\u3164\ufe0f\ue000é模"
    rows, table = both(judge, file, [Case(name, {name: floats(1)}, {name: floats(1)})])
    assert table.split("\n") == verify.format_rows(rows)
    assert all(line.isprintable() for line in table.split("\n"))


SIZES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, NAN, INF, -INF, 1e4, -1e9, -1e9 + 300, 3.4e38, 1e-38, 65504.0]),
    st.floats(-3, 3, width=32),
)


@st.composite
def compared(draw):
    """An output, what was got for it, and how it may be rounded: mostly the same, so that each judgement is needed."""
    shape = draw(SIZES)
    size = math.prod(shape)
    dtype = draw(st.sampled_from(["float16", "float32", "float64", "int64", "int8", "bool"]))
    values = draw(st.lists(NUMBERS, min_size=size, max_size=size))
    off = draw(st.sampled_from([0, 1e-7, 1e-5, 1e-2]))
    places = draw(st.lists(st.sampled_from([0, 0, 1, -1]), min_size=size, max_size=size))
    with np.errstate(all="ignore"):
        if dtype.startswith("float"):
            expected = np.array(values, "float64").astype(dtype).reshape(shape)
            factor = 1 + off * np.array(places, "float64").reshape(shape)
            actual = (expected.astype("float64") * factor + 1e-7 * (factor - 1)).astype(dtype)
        else:
            expected = np.nan_to_num(np.array(values, "float64")).astype("int64").astype(dtype).reshape(shape)
            actual = (expected.astype("int64") + np.array(places, int).reshape(shape)).astype(dtype)
    rounding = None
    if draw(st.booleans()):
        steps = draw(st.lists(st.sampled_from([0.0, 1e-31, 1e-6, 3e-3, 2.0]), min_size=size, max_size=size))
        rounding = np.array(steps, "float64").reshape(shape)
        rounding = rounding if dtype.startswith("float") else rounding > 1e-6
    return one(expected, actual, rounding)


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases=st.lists(compared(), min_size=1, max_size=5))
def test_rows_of_drawn_outputs_are_those_of_python(judge, file, cases):
    both(judge, file, cases)


def test_every_size_of_rounding(judge, file):
    """Written as steps, each of which stands for exactly the number that NumPy says."""
    steps = np.array([-32768, *range(-2200, 2048)], "int16")  # from what is 0 to what is infinite
    arrays = {"cases": np.array(["base"]), "0/outputs/out": np.zeros(steps.shape), "0/rounding/out": steps}
    np.savez_compressed(file, **arrays)
    ((sizes,),) = judge.ask({"does": "rounding", "path": str(file)})
    (case,) = verify.load_cases(file)
    assert [float(size) for size in sizes] == case.rounding["out"].tolist()
