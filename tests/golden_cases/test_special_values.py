"""Special values in golden cases: integers, zeros and ties by the dtype and the use of an input."""

import keras
import numpy as np
import pytest
from golden_case_helpers import generate_cases
from keras import layers, ops

from keras_attn_export._golden_cases.case_generation import generate_golden_cases
from keras_attn_export._golden_cases.special_values import SPECIAL_VALUES
from keras_attn_export._options import Options
from keras_attn_export._signature.signature import build_signature
from keras_attn_export._tracing.untraceable_axes import trace_or_raise


class LoopCount(layers.Layer):
    """Loop with as many iterations as the largest integer of the input."""

    def call(self, x):
        limit = ops.minimum(ops.max(x), 10**6)
        _, iterations = ops.while_loop(lambda i, _: i < limit, lambda i, n: (i + 1, n + 1.0), (0, ops.zeros((1,))))
        return ops.cast(x, "float32") + iterations


def inject_values(build, shape, dtype, samples=None):
    """Return golden cases of a model with one input, and the injected values by case."""
    x = keras.Input(shape, dtype=dtype, name="x")
    golden = generate_cases(keras.Model(x, build(x)), samples)
    return golden, {name: [entry.value for entry in entries] for name, entries in golden.injections_by_case.items()}


INTEGERS = {"x": np.array([[3], [5]], "int32")}
VALUES_BY_USE = [
    pytest.param(lambda x: x + 1, "int32", INTEGERS, [0, -1, -7, 2**24 + 1], id="numbers"),
    pytest.param(layers.Embedding(9, 2), "int32", None, [-1, 0, 8], id="ids, with -1 as the last one"),
    pytest.param(lambda x: layers.Embedding(9, 2)(x) * 2, "int32", INTEGERS, [0, -1, -7, 8], id="ids with samples"),
    pytest.param(LoopCount(), "int32", INTEGERS, [0, -1, -7], id="loop count"),
    pytest.param(lambda x: ops.one_hot(x, 300), "uint8", None, [0], id="bytes"),
    pytest.param(lambda x: x * 2, "bool", None, None, id="booleans"),
    pytest.param(lambda x: x * 2, "float32", None, ["zero", "-zero"], id="one float"),
]


@pytest.mark.parametrize(("build", "dtype", "samples", "values"), VALUES_BY_USE)
def test_special_values_depend_on_dtype_and_use(build, dtype, samples, values):
    golden, values_by_case = inject_values(build, (1,), dtype, samples)
    assert values_by_case.get(SPECIAL_VALUES) == values
    for injected in golden.injections_by_case.get(SPECIAL_VALUES, ()):
        number = float(str(injected.value).replace("zero", "0"))
        assert str(golden.cases[-1].inputs["x"][injected.row, 0].astype(float)) == str(number)


def test_float_sequences_have_ties_and_zeros_of_both_signs():
    golden, values_by_case = inject_values(lambda x: layers.MaxPooling1D(2)(x), (4, 3), "float32")
    assert values_by_case == {SPECIAL_VALUES: ["ties and zeros"]}
    row = golden.cases[-1].inputs["x"][1]
    assert {*np.signbit(row[row == 0])} == {True, False}


def test_static_batch_of_one_has_a_case_for_each_value():
    x = keras.Input(batch_shape=(1,), dtype="int32", name="x")
    golden = generate_cases(keras.Model(x, x * 2), {"x": np.array([3], "int32")})
    assert [*golden.injections_by_case] == [SPECIAL_VALUES, *(f"{SPECIAL_VALUES} {number}" for number in (2, 3, 4))]


def test_every_input_has_special_values():
    inputs = [keras.Input((1,), name=f"x{number}") for number in range(14)]
    golden = generate_cases(keras.Model(inputs, layers.Concatenate()(inputs)))
    assert {injected.input for injected in golden.injections_by_case[SPECIAL_VALUES]} == {
        tensor.name for tensor in inputs
    }
    a, b = (keras.Input(batch_shape=(1,), dtype="int32", name=name) for name in "ab")
    golden = generate_cases(keras.Model([a, b], a + b), {name: np.array([3], "int32") for name in "ab"})
    assert sorted(entries[0].input for entries in golden.injections_by_case.values()) == ["a"] * 4 + ["b"] * 4


def test_special_values_that_keras_refuses_are_removed():
    """A negative category is an error in a traced graph of Keras."""
    z = keras.Input((1,), dtype="int32", name="z")
    signature = build_signature(keras.Model(z, layers.CategoryEncoding(9)(z)), {"z": np.array([[3], [5]], "int32")})
    golden = generate_golden_cases(signature, Options(), trace_or_raise)
    assert all(injected.value >= 0 for injected in golden.injections_by_case[SPECIAL_VALUES])
