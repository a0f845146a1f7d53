"""Perturbed runs: the choice between eager execution and a TensorFlow graph, random seeds, and float64 models."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from golden_case_helpers import measure_output_limits
from keras import layers

from keras_attn_export._format.names import Case
from keras_attn_export._private_api.tensorflow_internals import count_operations
from keras_attn_export._rounding import perturbed_runs
from keras_attn_export._rounding.perturbed_runs import GraphRunner, Perturbation, build_runner
from keras_attn_export._signature.signature import build_signature

X = np.random.default_rng(3).standard_normal((4, 6)).astype("float32")


class DenseLoop(layers.Layer):
    """Loop that applies one Dense layer in each of its steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.dense = steps, layers.Dense(6, "sigmoid", name="dense")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return tf.while_loop(lambda i, _: i < self.steps, lambda i, x: (i + 1, self.dense(x)), (0, x))[1]


def build_model(layer):
    x = keras.Input((6,), name="x")
    return keras.Model(x, {"out": layer(x)})


def build_model_runner(model, num_runs=10**6):
    signature = build_signature(model)
    inputs = {"x": X.astype(model.inputs[0].dtype)}
    cases = [Case("base", inputs, signature.run(inputs))]
    return build_runner(signature, cases, num_runs, np.random.default_rng(0))


UNPERTURBED = Perturbation(0, "float32", np.random.default_rng(0))


def test_long_loops_run_as_a_graph_and_short_loops_eagerly():
    num_runs = perturbed_runs.MIN_GRAPH_OPERATIONS // 50
    runners = {steps: build_model_runner(build_model(DenseLoop(steps)), num_runs) for steps in (2, 40)}
    assert {steps: isinstance(runner, GraphRunner) for steps, runner in runners.items()} == {2: False, 40: True}
    assert count_operations(lambda: runners[40].run([{"x": X}], UNPERTURBED)) < 5  # a graph counts as one operation


def test_limits_are_independent_of_the_seed_of_tensorflow(monkeypatch):
    monkeypatch.setattr(perturbed_runs, "MIN_GRAPH_OPERATIONS", 0)
    model = build_model(DenseLoop(3))
    limits = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        limits.append(measure_output_limits(model, {"x": X})[0])
    np.testing.assert_array_equal(*limits)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (1.0 if tf.executing_eagerly() else 1.001),  # slightly different outputs in a graph
        lambda x: x * float(np.asarray(x).max() > -9),  # cannot be traced
    ],
    ids=["differs", "untraceable"],
)
def test_layers_without_an_equal_graph_run_eagerly(function):
    runner = build_model_runner(build_model(layers.Lambda(function, output_shape=(6,))))
    assert not isinstance(runner, GraphRunner)
    (outputs,) = runner.run([{"x": X}], UNPERTURBED)
    np.testing.assert_array_equal(outputs["out"], X)
    np.testing.assert_array_equal(runner.base_outputs[0]["out"], X)


@pytest.mark.parametrize("min_operations", [0, np.inf], ids=["graph", "eager"])
def test_float64_models_have_float64_limits(min_operations, monkeypatch):
    monkeypatch.setattr(perturbed_runs, "MIN_GRAPH_OPERATIONS", min_operations)
    x = keras.Input((6,), dtype="float64", name="x")
    model = keras.Model(x, {"out": layers.Dense(6, "sigmoid", dtype="float64")(x)})
    assert isinstance(build_model_runner(model, 1), GraphRunner) == (min_operations == 0)
    assert 0 < measure_output_limits(model, {"x": X.astype("float64")})[0].max() < 1e-13
