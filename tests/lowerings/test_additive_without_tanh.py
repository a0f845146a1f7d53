"""Additive scores without tanh: equal to the reference below, at and above the limits of the overflow guard."""

import itertools

import numpy as np
import pytest
from lowered_calls import Plan, assert_parity, open_session
from tolerances import assert_close, assert_identical

from keras_attn_export._lowerings.additive_without_tanh import MAX_ABS_SUM, MAX_ABS_WEIGHT_SUM

LARGE = 0.999 * MAX_ABS_SUM  # |q| + |k| of LARGE - 1 and 1 is just below the limit


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_units_that_do_not_fill_a_group_equal_the_reference(size):
    plan = Plan("additive", lengths="examples", weights=True, size=size)
    assert_parity(plan, plan.inputs(4, 5))


@pytest.mark.parametrize("largest", [0.1, 3.0, MAX_ABS_SUM / 2, MAX_ABS_SUM, 30.0, 1e4, 1e30])
@pytest.mark.parametrize("form", ["large", "batched"])
def test_scores_on_both_sides_of_the_guard_equal_the_reference(form, largest):
    plan = Plan("additive", leading=(2,), weights=True, size=5)
    for sign in (1, -1):
        inputs = plan.inputs(6, 7)
        for name, factor in (("queries", sign), ("keys", 1)):
            inputs[name] *= np.float32(factor * 0.999 * largest / np.abs(inputs[name]).max())
        assert_parity(plan, inputs, form)


@pytest.mark.parametrize("name", ["queries", "keys"])
@pytest.mark.parametrize("lowest", [-3e38, -np.inf])
def test_lowest_units_equal_the_reference(name, lowest):
    plan = Plan("additive", leading=(2,), weights=True, size=5)
    inputs = plan.inputs(4, 6)
    inputs[name][0, 1, 2] = lowest
    assert_parity(plan, inputs)


@pytest.mark.parametrize("size", [64, 256])
@pytest.mark.parametrize(("weight", "largest"), [(0.3, 0.1), (1.0, 0.01), (10.0, 1e-3), (900.0, 1e-4), (1e30, 1e-32)])
def test_weights_of_one_sign_equal_the_reference(size, weight, largest):
    plan = Plan("additive", leading=(2,), weights=True, size=size)
    inputs = plan.inputs(4, 5)
    inputs["w_v"] = np.random.default_rng(1).uniform(0.5 * weight, weight, (size, 1)).astype("float32")
    for name in ("queries", "keys"):
        inputs[name] *= np.float32(largest / np.abs(inputs[name]).max())
    assert_parity(plan, inputs)


@pytest.mark.parametrize(
    ("queries", "keys", "key_terms"),
    [
        ([LARGE - 1, 1 - LARGE, LARGE - 1, 1 - LARGE], [1, -1, -1, 1], [0.5, 0.1, -1, 0]),
        ([1, -1, -1, 1], [LARGE - 1, 1 - LARGE, LARGE - 1, 1 - LARGE], [0.5, -9, 0.1, 9]),
        ([-65] * 4, [70] * 4, [65, 65, 65, 65]),
        ([70] * 4, [-65] * 4, [-72, -72, -72, -72]),
    ],
    ids=["large queries", "large keys", "negative queries that cancel", "positive queries that cancel"],
)
def test_large_terms_equal_the_reference(queries, keys, key_terms):
    plan = Plan("additive", leading=(1,), weights=True, size=4)
    inputs = plan.inputs(2, 3)
    inputs["queries"][:], inputs["keys"][:] = np.array(queries, "float32"), np.array(keys, "float32")
    inputs["keys"][0, 1] = key_terms
    assert_parity(plan, inputs)


@pytest.mark.parametrize(
    ("total", "term"),
    [
        *((total, factor * MAX_ABS_SUM / 2) for total in (0.99, 1.01, 1e38) for factor in (0.99, 1.01, 1.1)),
        (None, 20.0),  # a group of four units has terms of exp(160)
    ],
)
def test_largest_additive_scores_do_not_overflow(total, term):
    plan = Plan("additive", leading=(1,), weights=True, size=4)
    inputs = plan.inputs(2, 3)
    inputs["queries"][:] = inputs["keys"][:] = np.float32(term)
    if total is not None:
        inputs["keys"][0, 1] = 1 - term
        inputs["w_v"] = np.full((4, 1), min(total * MAX_ABS_WEIGHT_SUM, 1e38) / 4, "float32")
    assert_parity(plan, inputs, tolerance=1e-4)  # the error of onnxruntime's tanh is 4e-5 here


def test_example_above_the_limit_changes_no_other_example():
    plan = Plan("additive", leading=(3,))
    inputs = plan.inputs(3, 4)
    run = open_session(plan, "large", provider="cpu").run
    (expected,) = run(None, inputs)
    inputs["keys"][1] *= 1e3
    (output,) = assert_parity(plan, inputs, run=run)
    assert_identical(output[[0, 2]], expected[[0, 2]])


def test_nan_query_changes_no_other_query():
    plan = Plan("additive", leading=(2,))
    inputs = plan.inputs(3, 4)
    run = open_session(plan, "large").run
    (expected,) = run(None, inputs)
    inputs["queries"][0, 1] = np.nan
    (output,) = run(None, inputs)
    assert np.isnan(output[0, 1]).all()
    assert_identical(np.delete(output.reshape(6, 6), 1, axis=0), np.delete(expected.reshape(6, 6), 1, axis=0))


@pytest.mark.parametrize("value", [1e3, -np.inf])
@pytest.mark.parametrize("form", ["large", "batched"])
def test_guard_detects_large_numbers_next_to_nan(form, value):
    """A maximum of onnxruntime can ignore numbers next to NaN, depending on their positions."""
    plan = Plan("additive", leading=(1,), weights=True, size=3)
    run = open_session(plan, form).run
    for row, column, nan_column in itertools.product((0, 1), range(3), range(3)):
        inputs = plan.inputs(2, 3)
        inputs["queries"][0, 1 - row, nan_column] = 0
        inputs["queries"][0, row, column] = value
        expected = run(None, inputs)
        inputs["queries"][0, 1 - row, nan_column] = np.nan
        for output, array in zip(run(None, inputs), expected, strict=True):
            assert_close(output[0, row], array[0, row])


def test_heavy_weights_that_cancel_equal_the_reference():
    """Sums without tanh would have a hundred times the error of tanh, from the rounding of exponents near 38."""
    plan, rng = Plan("additive", leading=(32,), weights=True, size=4, normalizer="sigmoid"), np.random.default_rng(0)
    inputs = plan.inputs(4, 6)
    inputs["w_v"] = np.array([[750], [-749], [751], [-750]], "float32")
    inputs["queries"][:] = rng.uniform(9, 9.9, (32, 1, 4))
    inputs["keys"] = rng.integers(-8, 8, (32, 6, 4)).astype("float32") * 2**-13 - inputs["queries"][:, :1]
    for form in ("large", "batched"):
        assert_parity(plan, inputs, form)
