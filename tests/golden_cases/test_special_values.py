"""Special values: what is tried of which input, and how far Keras takes it."""

import keras
import numpy as np
import pytest
from golden_case_helpers import generate_cases
from keras import layers, ops

from keras_attn_export._golden_cases.case_generation import generate_golden_cases
from keras_attn_export._golden_cases.special_values import SPECIAL
from keras_attn_export._options import Options
from keras_attn_export._signature.signature import build_signature
from keras_attn_export._tracing.untraceable_axes import trace_or_raise


class Counting(layers.Layer):
    """As many turns of a loop as the largest number says."""

    def call(self, x):
        most = ops.minimum(ops.max(x), 10**6)
        _, turns = ops.while_loop(lambda i, _: i < most, lambda i, n: (i + 1, n + 1.0), (0, ops.zeros((1,))))
        return ops.cast(x, "float32") + turns


def tried(build, shape, dtype, samples=None):
    x = keras.Input(shape, dtype=dtype, name="x")
    found = generate_cases(keras.Model(x, build(x)), samples)
    return found, {name: [trial.value for trial in trials] for name, trials in found.injected_values.items()}


INTEGERS = {"x": np.array([[3], [5]], "int32")}
TRIED = [
    pytest.param(lambda x: x + 1, "int32", INTEGERS, [0, -1, -7, 2**24 + 1], id="numbers"),
    pytest.param(layers.Embedding(9, 2), "int32", None, [-1, 0, 8], id="ids, of which Keras takes -1 for the last"),
    pytest.param(lambda x: layers.Embedding(9, 2)(x) * 2, "int32", INTEGERS, [0, -1, -7, 8], id="ids with samples"),
    pytest.param(Counting(), "int32", INTEGERS, [0, -1, -7], id="how often a loop runs"),
    pytest.param(lambda x: ops.one_hot(x, 300), "uint8", None, [0], id="bytes"),
    pytest.param(lambda x: x * 2, "bool", None, None, id="booleans"),
    pytest.param(lambda x: x * 2, "float32", None, ["zero", "-zero"], id="one float"),
]


@pytest.mark.parametrize(("build", "dtype", "samples", "values"), TRIED)
def test_special_values_depend_on_dtype_and_use(build, dtype, samples, values):
    found, of_cases = tried(build, (1,), dtype, samples)
    assert of_cases.get(SPECIAL) == values
    for trial in found.injected_values.get(SPECIAL, ()):
        number = float(str(trial.value).replace("zero", "0"))
        assert str(found.cases[-1].inputs["x"][trial.row, 0].astype(float)) == str(number)


def test_float_sequences_have_ties_and_zeros_of_both_signs():
    found, of_cases = tried(lambda x: layers.MaxPooling1D(2)(x), (4, 3), "float32")
    assert of_cases == {SPECIAL: ["ties and zeros"]}
    zeros = found.cases[-1].inputs["x"][1]
    assert {*np.signbit(zeros[zeros == 0])} == {True, False}


def test_static_batch_of_one_has_a_case_for_each_value():
    x = keras.Input(batch_shape=(1,), dtype="int32", name="x")
    found = generate_cases(keras.Model(x, x * 2), {"x": np.array([3], "int32")})
    assert [*found.injected_values] == [SPECIAL, *(f"{SPECIAL} {number}" for number in (2, 3, 4))]


def test_every_input_has_special_values():
    inputs = [keras.Input((1,), name=f"x{number}") for number in range(14)]
    found = generate_cases(keras.Model(inputs, layers.Concatenate()(inputs)))
    assert {trial.input for trial in found.injected_values[SPECIAL]} == {each.name for each in inputs}
    fixed = [keras.Input(batch_shape=(1,), dtype="int32", name=name) for name in ("a", "b")]
    found = generate_cases(
        keras.Model(fixed, fixed[0] + fixed[1]), {name: np.array([3], "int32") for name in ("a", "b")}
    )
    assert sorted(trials[0].input for trials in found.injected_values.values()) == ["a"] * 4 + ["b"] * 4


def test_special_values_that_keras_refuses_are_left_out():
    """A negative category is an error in Keras's graphs."""
    z = keras.Input((1,), dtype="int32", name="z")
    signature = build_signature(keras.Model(z, layers.CategoryEncoding(9)(z)), {"z": np.array([[3], [5]], "int32")})
    found = generate_golden_cases(signature, Options(), trace_or_raise)
    assert all(trial.value >= 0 for trial in found.injected_values[SPECIAL])
