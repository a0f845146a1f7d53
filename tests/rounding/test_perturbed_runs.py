"""A model that takes long one operation after the other runs as one graph, if that is the model and leaves it alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from golden_case_helpers import measure_output_limits
from keras import layers

from keras_attn_export._format.names import Case
from keras_attn_export._private_api.tensorflow_internals import count_operations
from keras_attn_export._rounding import perturbed_runs as module
from keras_attn_export._rounding.perturbed_runs import GraphRunner, Perturbation, build_runner
from keras_attn_export._signature.signature import build_signature

X = np.random.default_rng(3).standard_normal((4, 6)).astype("float32")


class Steps(layers.Layer):
    """So many steps that go through one Dense layer, in a loop."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.dense = steps, layers.Dense(6, "sigmoid", name="dense")

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return tf.while_loop(lambda i, _: i < self.steps, lambda i, x: (i + 1, self.dense(x)), (0, x))[1]


def model_of(layer):
    x = keras.Input((6,), name="x")
    return keras.Model(x, {"out": layer(x)})


def runner_of(model, times=10**6):
    signature = build_signature(model)
    inputs = {"x": X.astype(model.inputs[0].dtype)}
    cases = [Case("base", inputs, signature.run(inputs))]
    return build_runner(signature, cases, times, np.random.default_rng(0))


UNPERTURBED = Perturbation(0, "float32", np.random.default_rng(0))


def test_long_loops_run_as_a_graph_and_short_ones_one_by_one():
    runners = {steps: runner_of(model_of(Steps(steps)), times=module.MIN_GRAPH_OPERATIONS // 50) for steps in (2, 40)}
    assert {steps: isinstance(runner, GraphRunner) for steps, runner in runners.items()} == {2: False, 40: True}
    assert count_operations(lambda: runners[40].run([{"x": X}], UNPERTURBED)) < 5  # a graph is one


def test_limits_are_independent_of_the_seed_of_tensorflow(monkeypatch):
    monkeypatch.setattr(module, "MIN_GRAPH_OPERATIONS", 0)
    model = model_of(Steps(3))
    found = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        found.append(measure_output_limits(model, {"x": X})[0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (1.0 if tf.executing_eagerly() else 1.001),  # another model in a graph, by little
        lambda x: x * float(np.asarray(x).max() > -9),  # cannot be traced
    ],
    ids=["differs", "untraceable"],
)
def test_layers_without_an_equal_graph_run_one_by_one(function):
    runner = runner_of(model_of(layers.Lambda(function, output_shape=(6,))))
    assert not isinstance(runner, GraphRunner)
    (outputs,) = runner.run([{"x": X}], UNPERTURBED)
    np.testing.assert_array_equal(outputs["out"], X)
    np.testing.assert_array_equal(runner.base_outputs[0]["out"], X)


@pytest.mark.parametrize("worth", [0, np.inf], ids=["as a graph", "one by one"])
def test_float64_models_have_float64_limits(worth, monkeypatch):
    monkeypatch.setattr(module, "MIN_GRAPH_OPERATIONS", worth)
    x = keras.Input((6,), dtype="float64", name="x")
    model = keras.Model(x, {"out": layers.Dense(6, "sigmoid", dtype="float64")(x)})
    assert isinstance(runner_of(model, times=1), GraphRunner) == (worth == 0)
    assert 0 < measure_output_limits(model, {"x": X.astype("float64")})[0].max() < 1e-13
