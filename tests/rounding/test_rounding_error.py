"""What rounding may do to an output: as much as it does to the model itself, and no more."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from golden_case_helpers import measure_output_limits
from keras import layers, ops

from keras_attn_export._format.names import Case
from keras_attn_export._golden_cases.golden_cases import LARGE_VALUES
from keras_attn_export._rounding import perturbed_runs
from keras_attn_export._rounding.rounding_error import measure_limits
from keras_attn_export._signature.signature import build_signature


@pytest.fixture(params=["one by one", "as a graph"], autouse=True)
def way(request, monkeypatch):
    """However small the model is."""
    monkeypatch.setattr(perturbed_runs, "MIN_GRAPH_OPERATIONS", np.inf if request.param == "one by one" else 0)
    graph_runner, graphs = perturbed_runs._build_graph_runner, []
    monkeypatch.setattr(
        perturbed_runs, "_build_graph_runner", lambda *given: graphs.append(graph_runner(*given)) or graphs[-1]
    )
    yield
    # what is left of lost digits is another in a graph
    lost_digits = "cancel" in request.node.name and "Traced" not in request.node.name
    assert None not in graphs or lost_digits, "a model ran one by one that could be a graph"


def rounding_of(outputs, given, precision="float32"):
    """The same of what a function makes of an input."""
    x = keras.Input(given.shape[1:], name="x")
    return measure_output_limits(keras.Model(x, {"out": outputs(x)}), {"x": given}, precision)


def numbers(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype("float32")


def dense(units=4, activation=None):
    x = keras.Input((6,), name="x")
    return keras.Model(x, {"out": layers.Dense(units, activation, bias_initializer="normal")(x)})


def test_sums_of_equal_numbers_may_round_in_one_direction():
    """As the values behind a length of 1: summed one after the other, none of the roundings undoes another."""
    given = np.full((1, 447, 1), 0.8 / 417, "float32")
    limit, _ = rounding_of(lambda x: ops.sum(x, 1), given)
    in_order = np.cumsum(given[0, :, 0], dtype="float32")[-1]
    exact = given.astype("float64").sum()
    assert abs(in_order - exact) > 15 * np.finfo("float32").eps * exact
    assert np.all(abs(in_order - exact) < limit)
    assert limit.max() < 2e-5 * exact


def test_sums_of_equal_numbers_may_cancel():
    """As in a projection behind such attention: what is left is as far off as both sums, and much smaller."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    project = layers.Dense(1, use_bias=False)
    model = keras.Model(ids, {"out": project(ops.sum(layers.Embedding(1, 2)(ids), 1))})
    value, kernel = np.array([[0.529625, 0.987625]], "float32"), np.array([[1], [-0.5]], "float32")
    model.set_weights([value, kernel])
    limit, expected = measure_output_limits(model, {"ids": np.zeros((1, 511), "int32")})
    in_order = np.cumsum(np.repeat(value, 511, 0), 0, dtype="float32")[-1:] @ kernel
    exact = 511 * value.astype("float64") @ kernel
    assert abs(in_order - exact) > 1000 * np.finfo("float32").eps * exact
    assert np.all(abs(expected - exact) < limit)
    assert np.all(abs(in_order - exact) < limit)
    assert limit < 1e-3 * exact


@pytest.mark.parametrize(("precision", "behind"), [("float16", 30.5), ("int8", 100.5)])
def test_large_scores_have_wide_limits_in_coarse_precisions(precision, behind):
    """Moved by a unit the first of two stays the larger one; a file may round further, in each term of a product."""
    x = keras.Input((2,), name="x")
    signature = build_signature(keras.Model(x, {"out": ops.softmax(x)}))
    inputs = {"x": np.float32([[1e4, 1e4 - behind]])}
    cases = [Case(name, inputs, signature.run(inputs)) for name in ("base", LARGE_VALUES)]
    base, large = (case.rounding["out"][0, 1] for case in measure_limits(signature, cases, precision))
    assert base < 0.1
    assert large > 1
    signature, inputs = build_signature(dense()), {"x": numbers(8, 6)}  # which sees no keys
    cases = [Case(name, inputs, signature.run(inputs)) for name in ("base", LARGE_VALUES)]
    base, large = (case.rounding["out"].max() for case in measure_limits(signature, cases, precision))
    assert large < 2 * base


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_sums_over_many_positions_widen_float32_limits_alone(precision):
    def share(*shape):
        rows = (-1, int(np.prod(shape[1:-1])), shape[-1])
        given = 2 + numbers(*shape) % 1
        limit, expected = rounding_of(lambda x: ops.reshape(x, rows)[:, :9] * 3.0, given, precision)
        return np.median(limit / np.abs(expected))

    few = share(4, 9, 3)
    for shape in [(512, 9, 3), (4, 9, 512), (4, 512, 9, 3)]:  # examples, channels, the height of an image
        assert share(*shape) < 1.5 * few
    assert share(4, 512, 3) < (8 if precision == "float32" else 1.5) * few


def test_cancellation_widens_limits():
    given = 300 + numbers(5, 4, 9)
    limit, expected = rounding_of(lambda x: ops.mean(x * x, -1) - ops.mean(x, -1) ** 2, given)
    error = np.abs(expected - given.astype("float64").var(-1))
    assert error.max() > 1e-3  # float32 resolves 0.008 at 90000
    assert np.all(error < limit)
    assert limit.max() < 2


class LessTheirMean(layers.Embedding):
    """Rows of a table less their mean."""

    def call(self, ids):
        rows = super().call(ids)
        return rows - ops.mean(rows, -1, keepdims=True)


class TracedLessTheirMean(LessTheirMean):
    call = tf.function(LessTheirMean.call)


@pytest.mark.parametrize("layer", [LessTheirMean, TracedLessTheirMean])
def test_weights_that_cancel_widen_limits_and_are_restored(layer):
    ids = keras.Input((), dtype="int32", name="ids")
    model = keras.Model(ids, {"out": layer(7, 5)(ids)})
    model.set_weights([1000 + numbers(7, 5)])
    limit, expected = measure_output_limits(model, {"ids": np.arange(7)})
    assert np.abs(expected).max() < 5
    assert 1e-4 < np.median(limit) < 1e-2  # float32 resolves 6e-5 at 1000
    np.testing.assert_array_equal(model.get_weights()[0], 1000 + numbers(7, 5))
    np.testing.assert_array_equal(model(np.arange(7))["out"], expected)


def test_wide_columns_and_fills_leave_other_limits_narrow():
    x, seen = keras.Input((6,), name="x"), keras.Input((6,), dtype="bool", name="seen")
    both = ops.concatenate([layers.Dense(1)(x) * 1e6, layers.Dense(2)(x)], axis=-1)
    limit, expected = measure_output_limits(keras.Model(x, {"out": both}), {"x": numbers(5, 6)})
    assert np.abs(expected[:, 0]).max() > 1e5
    assert limit[:, 1:].max() < 1e-4
    filled = keras.Model([x, seen], {"out": ops.where(seen, x * 0.3, -1e9)})
    limit, expected = measure_output_limits(filled, {"x": numbers(5, 6), "seen": numbers(5, 6) > 0})
    assert limit[expected > -1e8].max() < 1e-4


def test_small_outputs_have_small_limits_and_tails_do_not():
    model = dense()
    model.layers[1].set_weights([numbers(6, 4) * 1e-7, np.zeros(4, "float32")])
    small, expected = measure_output_limits(model, {"x": numbers(5, 6)})
    assert small.max() < 1e-4 * np.abs(expected).max()
    saturated = dense(1, "sigmoid")
    tail, expected = measure_output_limits(saturated, {"x": numbers(9, 6) * 300})
    assert expected.min() < 1e-12  # where onnxruntime gives 1e-8
    assert 3e-8 < tail[expected < 1e-12].min() < 1e-5


@pytest.mark.parametrize("activation", ["sigmoid", "silu", "gelu"])
def test_closed_gates_allow_the_sigmoid_of_onnxruntime(activation):
    gate, state = keras.Input((3,), name="gate"), keras.Input((3,), name="state")
    out = keras.activations.get(activation)(gate) * state + ops.tanh(state)  # in which the state is not seen
    inputs = {"gate": np.full((4, 3), -20, "float32"), "state": 1e4 * numbers(4, 3)}
    limit, expected = measure_output_limits(keras.Model([gate, state], {"out": out}), inputs)
    size = (1 if activation == "sigmoid" else 20) * np.abs(inputs["state"])
    assert np.abs(expected).max() < 2
    assert np.all(limit > 1.7e-7 * size)  # as far off as onnxruntime's sigmoid was seen to be
    assert np.median(limit / size) < 3e-6


@pytest.mark.parametrize("gate_of_all", [-30, 30])
def test_limits_cover_gates_that_err_alike_or_apart(gate_of_all):
    """Otherwise weights of a softmax would seem to stay, and weights that onnxruntime moves would be refused."""
    given = np.full((4, 8), gate_of_all, "float32")
    limit, expected = rounding_of(lambda gate: ops.softmax(1e4 * keras.activations.sigmoid(gate)), given)
    assert np.all(limit > 1.7e-7 * 1e4 * expected)
    given = np.full((4, 4096), -30, "float32")
    limit, _ = rounding_of(lambda gate: ops.sum(1e4 * keras.activations.sigmoid(gate), -1, keepdims=True), given)
    assert np.all(limit > 1.7e-7 * 1e4 * 4096)


def test_log_probability_near_zero_rounds_as_a_sum_near_one():
    """Where all others have 1e-5 of the probability together, its logarithm is known to 1e-7 and no better."""
    given = np.where(np.arange(9) == 4, 14, numbers(5, 9))
    given[:, 0] = -np.inf
    limit, expected = rounding_of(ops.log_softmax, given.astype("float32"))
    assert -1e-4 < expected[:, 4].min() < 0
    assert np.all((limit[:, 4] > 5e-7) & (limit[:, 4] < 1e-5))
    assert np.isneginf(expected[:, 0]).all()
    assert np.all(limit[:, 1:] < 1e-4)


def test_choices_between_equal_scores_are_ties():
    x = keras.Input((3,), name="x")
    model = keras.Model(x, {"out": ops.argmax(x * 0.1 + x * 0.2, -1), "any": ops.any(x > 0.5, -1)})
    x = np.array([[1, 1, 0], [1, 0.5, 0], [0.2, 0.9, 0.9], [0.1, 0, 0.4]], "float32")
    assert measure_output_limits(model, {"x": x})[0].tolist() == [True, False, True, False]
    near = np.array([[0.5, 0, 0], [0.6, 0, 0]], "float32")
    assert measure_output_limits(model, {"x": near}, name="any")[0].tolist() == [True, False]


def test_scores_apart_in_float32_may_be_ties_in_float16():
    dense = layers.Dense(2, use_bias=False, kernel_initializer="identity")
    for precision, ties in {"float32": [False, False], "float16": [True, False]}.items():
        given = np.array([[1, 1.001], [1, 1.5]], "float32")
        assert rounding_of(lambda x: ops.argmax(dense(x), -1), given, precision)[0].tolist() == ties


def test_coarser_precisions_have_wider_limits_which_are_deterministic():
    model, inputs = dense(), {"x": numbers(5, 6)}
    before = model.get_weights()
    each = [
        measure_output_limits(model, inputs, precision)[0] for precision in ("float32", "float32", "float16", "int8")
    ]
    np.testing.assert_array_equal(each[0], each[1])
    limits = [np.median(limit) for limit in each[1:]]
    assert 1e-7 < limits[0] < 1e-4 < limits[1] < 0.05 < limits[2] < 1
    for weight, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, kept)


def test_image_convolutions_have_no_int8_limit_and_scalars_have_limits():
    x = keras.Input((6, 6, 2), name="x")
    conv = keras.Model(x, {"out": layers.Conv2D(3, 3)(x), "mean": ops.mean(x)})
    inputs = {"x": numbers(2, 6, 6, 2)}
    float32, int8 = (measure_output_limits(conv, inputs, precision)[0].max() for precision in ("float32", "int8"))
    assert int8 < 0.2
    assert float32 < 1e-4
    limit, expected = measure_output_limits(conv, inputs, name="mean")
    assert limit.shape == expected.shape == ()
    assert 0 < limit < 1e-5


def test_outputs_may_have_as_many_rows_as_inputs_have_numbers():
    positive = layers.Lambda(lambda x: tf.boolean_mask(x, x > 0))
    limit, expected = rounding_of(positive, np.array([[1, -1, 1e-45, -1e-45, 2, 3]], "float32") + 0.1)
    assert limit.shape == expected.shape
