"""Special values: what is tried of which input, how far Keras takes it, and where a file gives something else."""

import keras
import numpy as np
import pytest
from golden import cases_of
from keras import layers, ops

from keras_attn_export._bundle.tried_values import values_text
from keras_attn_export._model.golden_cases import golden_cases
from keras_attn_export._model.signature import model_signature
from keras_attn_export._model.special_values import FINITE, NOT_FINITE, Trial, with_trials
from keras_attn_export._model.special_verdicts import apart, differing
from keras_attn_export._options import Options
from keras_attn_export._standalone.verify import Case
from keras_attn_export._tracing.untraceable import check_traceable

EXACT = {"relative": 0.0, "absolute": 0.0}
ENDS = [2**31 - 1, -(2**31)]


class Counting(layers.Layer):
    """As many turns of a loop as the largest number says."""

    def call(self, x):
        most = ops.minimum(ops.max(x), 10**6)
        _, turns = ops.while_loop(lambda i, _: i < most, lambda i, n: (i + 1, n + 1.0), (0, ops.zeros((1,))))
        return ops.cast(x, "float32") + turns


def tried(build, shape, dtype, samples=None):
    x = keras.Input(shape, dtype=dtype, name="x")
    found = cases_of(keras.Model(x, build(x)), samples)
    return found, {name: [trial.value for trial in trials] for name, trials in found.trials.items()}


INTEGERS = {"x": np.array([[3], [5]], "int32")}
TRIED = [
    pytest.param(lambda x: x + 1, "int32", INTEGERS, [0, -1, -7, 2**24 + 1, *ENDS], id="numbers"),
    pytest.param(layers.Embedding(9, 2), "int32", None, [-1, 0, 8], id="ids, of which Keras takes -1 for the last"),
    pytest.param(lambda x: layers.Embedding(9, 2)(x) * 2, "int32", INTEGERS, [0, -1, -7, 8], id="ids with samples"),
    pytest.param(Counting(), "int32", INTEGERS, [0, -1, -7], id="how often a loop runs"),
    pytest.param(lambda x: ops.one_hot(x, 300), "uint8", None, [0, 255], id="bytes"),
    pytest.param(lambda x: x * 2, "bool", None, None, id="booleans"),
    pytest.param(lambda x: x * 2, "float32", None, ["zero", "-zero"], id="one float"),
]


@pytest.mark.parametrize(("build", "dtype", "samples", "values"), TRIED)
def test_what_is_tried_of_an_input(build, dtype, samples, values):
    found, of_cases = tried(build, (1,), dtype, samples)
    assert of_cases.get(FINITE) == values
    for trial in found.trials.get(FINITE, ()):
        number = float(str(trial.value).replace("zero", "0"))
        assert str(found.cases[-1].inputs["x"][trial.row, 0].astype(float)) == str(number)


def test_floats_are_tried_equal_and_not_finite():
    found, of_cases = tried(lambda x: layers.MaxPooling1D(2)(x), (4, 3), "float32")
    assert of_cases == {FINITE: ["ties and zeros"], NOT_FINITE: ["infinity", "-infinity", "NaN", "NaN, in front"]}
    (case,) = found.others
    rows = case.inputs["x"].reshape(len(case.inputs["x"]), -1)
    assert np.isfinite(rows).all(1).tolist() == [True] + [False] * 4
    assert found.cases[-1].name == FINITE  # the others are none: their answers are told, and do not travel
    zeros = found.cases[-1].inputs["x"][1]
    assert {*np.signbit(zeros[zeros == 0])} == {True, False}


def test_a_batch_of_one_size_has_a_case_for_each():
    x = keras.Input(batch_shape=(2, 3), name="x")
    found = cases_of(keras.Model(x, x * 2))
    assert [case.name for case in found.others] == [NOT_FINITE, *(f"{NOT_FINITE} {number}" for number in (2, 3, 4))]


def test_every_input_of_many_is_tried():
    inputs = [keras.Input((1,), name=f"x{number}") for number in range(14)]
    found = cases_of(keras.Model(inputs, layers.Concatenate()(inputs)))
    for case in (FINITE, NOT_FINITE):
        assert {trial.input for trial in found.trials[case]} == {each.name for each in inputs}
    fixed = [keras.Input(batch_shape=(1,), dtype="int32", name=name) for name in ("a", "b")]
    found = cases_of(keras.Model(fixed, fixed[0] + fixed[1]), {name: np.array([3], "int32") for name in ("a", "b")})
    assert sorted(trials[0].input for trials in found.trials.values()) == ["a"] * 5 + ["b"] * 5


def test_what_keras_does_not_take_leaves_the_others():
    """An index of NaN is an error in Keras, a negative category in its graphs."""
    x, y = keras.Input((1,), name="x"), keras.Input((1,), name="y")
    chosen = ops.take(ops.ones((9, 1)), ops.cast(ops.abs(x), "int32"))
    found = cases_of(keras.Model([x, y], chosen + y), {name: np.ones((2, 1), "float32") for name in "xy"})
    assert {trial.input for trial in found.trials[NOT_FINITE]} == {"y"}
    z = keras.Input((1,), dtype="int32", name="z")
    signature = model_signature(keras.Model(z, layers.CategoryEncoding(9)(z)), {"z": np.array([[3], [5]], "int32")})
    found = golden_cases(signature, Options(), check_traceable)
    assert all(trial.value >= 0 for trial in found.trials[FINITE])


def verdict(actual, expected=((0.0,), (1.0,), (2.0,), (np.nan,))):
    trials = [Trial("x", -1, 1), Trial("x", "NaN", 3)]
    case = Case(FINITE, {"x": np.zeros(4)}, {"y": np.array(expected)})
    wrong, others = differing(case, trials, {"y": np.array(actual)}, EXACT)
    return [trial.kind for trial in wrong], others


@pytest.mark.parametrize(
    ("actual", "wrong", "others"),
    [
        (((0.0,), (1.0,), (2.0,), (np.nan,)), [], False),
        (((0.0,), (9.0,), (2.0,), (np.nan,)), ["-1"], False),
        (((0.0,), (1.0,), (2.0,), (3.0,)), ["NaN"], False),
        (((0.0,), (1.0,), (9.0,), (np.nan,)), [], True),
        (0.0, ["-1", "NaN"], False),
    ],
)
def test_a_difference_is_that_of_the_value_in_its_row(actual, wrong, others):
    assert verdict(actual) == (wrong, others)


def test_nan_may_go_further_in_a_row_of_nan_alone():
    nan = np.nan
    expected = ((0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (nan, 0.0))
    assert verdict(((0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (nan, nan)), expected) == ([], False)
    assert verdict(((0.0, 0.0), (1.0, nan), (2.0, 2.0), (3.0, nan)), expected) == (["-1", "NaN"], False)


def test_examples_beside_others_that_are_not_finite():
    outputs = {"y": np.array([[0.0], [np.nan], [np.nan], [4.0]]), "of all": np.zeros(2)}
    case = Case(NOT_FINITE, {"x": np.zeros(4)}, outputs)
    alone, taken = apart(case, [Trial("x", "NaN", 1)])
    assert {name: array.tolist() for name, array in alone.outputs.items()} == {
        "y": [[0.0], [4.0]]
    }  # of the third Keras itself lets the NaN of the second in
    assert taken({"y": np.arange(4.0)[:, np.newaxis]})["y"].tolist() == [[0.0], [3.0]]


def test_ties_reach_scalars_and_rows():
    changed = with_trials({"x": np.ones((3, 2), "float32")}, [Trial("x", "-infinity", 2)])
    assert changed["x"].tolist() == [[1, 1], [1, 1], [-np.inf, 1]]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"drawn": "integers -1 to 60"}, "integers -1 to 60"),
        ({"drawn": "integers -1 to 60", "equal": ["2147483647"]}, "integers -1 to 60; 2147483647 equal"),
        (
            {"drawn": "normal floats", "equal": ["infinity"], "differ": {"NaN": {"in": "`MaxPool`", "why": "x"}}},
            "normal floats; infinity equal; NaN differs in `MaxPool`",
        ),
        (None, ""),  # in bundles of before
    ],
)
def test_what_was_tried_in_words(values, text):
    assert values_text({"moves": [], "values": values}) == text
