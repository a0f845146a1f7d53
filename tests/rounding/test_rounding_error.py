"""Rounding limits of outputs: wide enough for correct implementations, narrow wherever the model rounds little."""

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


@pytest.fixture(params=["eager", "graph"], autouse=True)
def execution(request, monkeypatch):
    """Kind of the perturbed runs, for models of any size."""
    monkeypatch.setattr(perturbed_runs, "MIN_GRAPH_OPERATIONS", np.inf if request.param == "eager" else 0)
    build, runners = perturbed_runs._build_graph_runner, []
    monkeypatch.setattr(
        perturbed_runs, "_build_graph_runner", lambda *args: runners.append(build(*args)) or runners[-1]
    )
    yield
    # A difference of nearly equal numbers consists of rounding errors, which are different in a graph.
    may_have_no_graph = "cancel" in request.node.name and "Traced" not in request.node.name
    assert None not in runners or may_have_no_graph, "the graph of the model has different outputs"


def measure_function_limits(function, x, precision="float32"):
    """Return the rounding limits of the output of a function of Keras tensors, and the output."""
    tensor = keras.Input(x.shape[1:], name="x")
    return measure_output_limits(keras.Model(tensor, {"out": function(tensor)}), {"x": x}, precision)


def draw_normal(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype("float32")


def build_dense_model(units=4, activation=None):
    x = keras.Input((6,), name="x")
    return keras.Model(x, {"out": layers.Dense(units, activation, bias_initializer="normal")(x)})


def test_sums_of_equal_numbers_may_round_in_one_direction():
    """A sequential sum of equal numbers accumulates rounding errors of one sign."""
    x = np.full((1, 447, 1), 0.8 / 417, "float32")
    limit, _ = measure_function_limits(lambda x: ops.sum(x, 1), x)
    sequential_sum = np.cumsum(x[0, :, 0], dtype="float32")[-1]
    exact_sum = x.astype("float64").sum()
    assert abs(sequential_sum - exact_sum) > 15 * np.finfo("float32").eps * exact_sum
    assert np.all(abs(sequential_sum - exact_sum) < limit)
    assert limit.max() < 2e-5 * exact_sum


def test_sums_of_equal_numbers_may_cancel():
    """A projection of two such sums to their difference has the errors of both sums and a much smaller value."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    project = layers.Dense(1, use_bias=False)
    model = keras.Model(ids, {"out": project(ops.sum(layers.Embedding(1, 2)(ids), 1))})
    value, kernel = np.array([[0.529625, 0.987625]], "float32"), np.array([[1], [-0.5]], "float32")
    model.set_weights([value, kernel])
    limit, expected = measure_output_limits(model, {"ids": np.zeros((1, 511), "int32")})
    sequential_sum = np.cumsum(np.repeat(value, 511, 0), 0, dtype="float32")[-1:] @ kernel
    exact_sum = 511 * value.astype("float64") @ kernel
    assert abs(sequential_sum - exact_sum) > 1000 * np.finfo("float32").eps * exact_sum
    assert np.all(abs(expected - exact_sum) < limit)
    assert np.all(abs(sequential_sum - exact_sum) < limit)
    assert limit < 1e-3 * exact_sum


@pytest.mark.parametrize(("precision", "gap"), [("float16", 30.5), ("int8", 100.5)])
def test_large_scores_have_wide_limits_in_coarse_precisions(precision, gap):
    """One ulp does not change the order of two scores, but a file rounds every term of their products."""
    x = keras.Input((2,), name="x")
    signature = build_signature(keras.Model(x, {"out": ops.softmax(x)}))
    inputs = {"x": np.float32([[1e4, 1e4 - gap]])}
    cases = [Case(name, inputs, signature.run(inputs)) for name in ("base", LARGE_VALUES)]
    base, large = (case.rounding_limits["out"][0, 1] for case in measure_limits(signature, cases, precision))
    assert base < 0.1
    assert large > 1
    signature, inputs = build_signature(build_dense_model()), {"x": draw_normal(8, 6)}  # a model without scores
    cases = [Case(name, inputs, signature.run(inputs)) for name in ("base", LARGE_VALUES)]
    base, large = (case.rounding_limits["out"].max() for case in measure_limits(signature, cases, precision))
    assert large < 2 * base


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_sums_over_many_positions_widen_float32_limits_alone(precision):
    def measure_share(*shape):
        row_shape = (-1, int(np.prod(shape[1:-1])), shape[-1])
        x = 2 + draw_normal(*shape) % 1
        limit, expected = measure_function_limits(lambda x: ops.reshape(x, row_shape)[:, :9] * 3.0, x, precision)
        return np.median(limit / np.abs(expected))

    base_share = measure_share(4, 9, 3)
    for shape in [(512, 9, 3), (4, 9, 512), (4, 512, 9, 3)]:  # many examples, many channels, a high image
        assert measure_share(*shape) < 1.5 * base_share
    assert measure_share(4, 512, 3) < (8 if precision == "float32" else 1.5) * base_share


def test_cancellation_widens_limits():
    x = 300 + draw_normal(5, 4, 9)
    limit, expected = measure_function_limits(lambda x: ops.mean(x * x, -1) - ops.mean(x, -1) ** 2, x)
    error = np.abs(expected - x.astype("float64").var(-1))
    assert error.max() > 1e-3  # float32 resolves 0.008 at 90000
    assert np.all(error < limit)
    assert limit.max() < 2


class CenteredEmbedding(layers.Embedding):
    """Embedding that subtracts the mean of each row of its table."""

    def call(self, ids):
        rows = super().call(ids)
        return rows - ops.mean(rows, -1, keepdims=True)


class TracedCenteredEmbedding(CenteredEmbedding):
    call = tf.function(CenteredEmbedding.call)


@pytest.mark.parametrize("layer_type", [CenteredEmbedding, TracedCenteredEmbedding])
def test_weights_that_cancel_widen_limits_and_are_restored(layer_type):
    ids = keras.Input((), dtype="int32", name="ids")
    model = keras.Model(ids, {"out": layer_type(7, 5)(ids)})
    model.set_weights([1000 + draw_normal(7, 5)])
    limit, expected = measure_output_limits(model, {"ids": np.arange(7)})
    assert np.abs(expected).max() < 5
    assert 1e-4 < np.median(limit) < 1e-2  # float32 resolves 6e-5 at 1000
    np.testing.assert_array_equal(model.get_weights()[0], 1000 + draw_normal(7, 5))
    np.testing.assert_array_equal(model(np.arange(7))["out"], expected)


def test_wide_columns_and_fills_leave_other_limits_narrow():
    x, mask = keras.Input((6,), name="x"), keras.Input((6,), dtype="bool", name="mask")
    columns = ops.concatenate([layers.Dense(1)(x) * 1e6, layers.Dense(2)(x)], axis=-1)
    limit, expected = measure_output_limits(keras.Model(x, {"out": columns}), {"x": draw_normal(5, 6)})
    assert np.abs(expected[:, 0]).max() > 1e5
    assert limit[:, 1:].max() < 1e-4
    model = keras.Model([x, mask], {"out": ops.where(mask, x * 0.3, -1e9)})
    limit, expected = measure_output_limits(model, {"x": draw_normal(5, 6), "mask": draw_normal(5, 6) > 0})
    assert limit[expected > -1e8].max() < 1e-4


def test_small_outputs_have_small_limits_except_tails_of_a_sigmoid():
    model = build_dense_model()
    model.layers[1].set_weights([draw_normal(6, 4) * 1e-7, np.zeros(4, "float32")])
    limit, expected = measure_output_limits(model, {"x": draw_normal(5, 6)})
    assert limit.max() < 1e-4 * np.abs(expected).max()
    limit, expected = measure_output_limits(build_dense_model(1, "sigmoid"), {"x": draw_normal(9, 6) * 300})
    assert expected.min() < 1e-12  # onnxruntime returns 1e-8
    assert 3e-8 < limit[expected < 1e-12].min() < 1e-5


@pytest.mark.parametrize("activation", ["sigmoid", "silu", "gelu"])
def test_limits_of_closed_gates_cover_the_sigmoid_of_onnxruntime(activation):
    gate, state = keras.Input((3,), name="gate"), keras.Input((3,), name="state")
    out = keras.activations.get(activation)(gate) * state + ops.tanh(state)  # small outputs of a large state
    inputs = {"gate": np.full((4, 3), -20, "float32"), "state": 1e4 * draw_normal(4, 3)}
    limit, expected = measure_output_limits(keras.Model([gate, state], {"out": out}), inputs)
    scale = (1 if activation == "sigmoid" else 20) * np.abs(inputs["state"])
    assert np.abs(expected).max() < 2
    assert np.all(limit > 1.7e-7 * scale)  # the largest error of onnxruntime's sigmoid is 1.4 ulps of 1
    assert np.median(limit / scale) < 3e-6


@pytest.mark.parametrize("gate", [-30, 30])
def test_limits_cover_equal_and_independent_errors_of_gates(gate):
    """A softmax cancels an error that all gates share, and a sum accumulates it."""
    x = np.full((4, 8), gate, "float32")
    limit, expected = measure_function_limits(lambda x: ops.softmax(1e4 * keras.activations.sigmoid(x)), x)
    assert np.all(limit > 1.7e-7 * 1e4 * expected)
    x = np.full((4, 4096), -30, "float32")
    limit, _ = measure_function_limits(lambda x: ops.sum(1e4 * keras.activations.sigmoid(x), -1, keepdims=True), x)
    assert np.all(limit > 1.7e-7 * 1e4 * 4096)


def test_log_probability_near_zero_rounds_as_a_sum_near_one():
    """If a class has all but 1e-5 of the probability, its log-softmax is the logarithm of a sum rounded near 1."""
    scores = np.where(np.arange(9) == 4, 14, draw_normal(5, 9))
    scores[:, 0] = -np.inf
    limit, expected = measure_function_limits(ops.log_softmax, scores.astype("float32"))
    assert -1e-4 < expected[:, 4].min() < 0
    assert np.all((limit[:, 4] > 5e-7) & (limit[:, 4] < 1e-5))
    assert np.isneginf(expected[:, 0]).all()
    assert np.all(limit[:, 1:] < 1e-4)


def test_choices_between_equal_scores_are_ties():
    x = keras.Input((3,), name="x")
    model = keras.Model(x, {"out": ops.argmax(x * 0.1 + x * 0.2, -1), "any": ops.any(x > 0.5, -1)})
    x = np.array([[1, 1, 0], [1, 0.5, 0], [0.2, 0.9, 0.9], [0.1, 0, 0.4]], "float32")
    assert measure_output_limits(model, {"x": x})[0].tolist() == [True, False, True, False]
    x = np.array([[0.5, 0, 0], [0.6, 0, 0]], "float32")
    assert measure_output_limits(model, {"x": x}, name="any")[0].tolist() == [True, False]


def test_close_scores_are_ties_in_float16_alone():
    dense = layers.Dense(2, use_bias=False, kernel_initializer="identity")
    for precision, ties in {"float32": [False, False], "float16": [True, False]}.items():
        x = np.array([[1, 1.001], [1, 1.5]], "float32")
        assert measure_function_limits(lambda x: ops.argmax(dense(x), -1), x, precision)[0].tolist() == ties


def test_coarser_precisions_have_wider_limits_which_are_deterministic():
    model, inputs = build_dense_model(), {"x": draw_normal(5, 6)}
    weights = model.get_weights()
    precisions = ("float32", "float32", "float16", "int8")
    limits = [measure_output_limits(model, inputs, precision)[0] for precision in precisions]
    np.testing.assert_array_equal(limits[0], limits[1])
    float32, float16, int8 = (np.median(limit) for limit in limits[1:])
    assert 1e-7 < float32 < 1e-4 < float16 < 0.05 < int8 < 1
    for array, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_image_convolutions_have_no_int8_limit_and_scalars_have_limits():
    x = keras.Input((6, 6, 2), name="x")
    model = keras.Model(x, {"out": layers.Conv2D(3, 3)(x), "mean": ops.mean(x)})
    inputs = {"x": draw_normal(2, 6, 6, 2)}
    float32, int8 = (measure_output_limits(model, inputs, precision)[0].max() for precision in ("float32", "int8"))
    assert int8 < 0.2
    assert float32 < 1e-4
    limit, expected = measure_output_limits(model, inputs, name="mean")
    assert limit.shape == expected.shape == ()
    assert 0 < limit < 1e-5


def test_outputs_may_have_a_row_for_each_element_of_the_input():
    select_positive = layers.Lambda(lambda x: tf.boolean_mask(x, x > 0))
    limit, expected = measure_function_limits(
        select_positive, np.array([[1, -1, 1e-45, -1e-45, 2, 3]], "float32") + 0.1
    )
    assert limit.shape == expected.shape
