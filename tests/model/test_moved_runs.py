"""A model that takes long one operation after the other runs as one graph, if that is the model and leaves it alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from test_rounding import rounding

from keras_attn_export._internals.tensorflow_internals import operations_of
from keras_attn_export._model import moved_runs as module
from keras_attn_export._model.moved_runs import moved_runs
from keras_attn_export._model.signature import model_signature
from keras_attn_export._model.trial_runs import is_same_model
from keras_attn_export._standalone.verify import Case

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


def gates(x):
    """The same gate at each step."""

    def step(i, found):
        return i + 1, found.write(i, keras.ops.sigmoid(x * 0.0 + 1.0))

    found = tf.while_loop(lambda i, _: i < 5, step, (0, tf.TensorArray("float32", 5)))[1]
    return tf.transpose(found.stack(), (1, 0, 2))


def eagerly():
    """A layer that is not the same in a graph, by little."""
    return layers.Lambda(lambda x: x * (1.0 if tf.executing_eagerly() else 1.001))


def model_of(*in_turn):
    x = keras.Input((6,), name="x")
    out = x
    for layer in in_turn:
        out = layer(out)
    return keras.Model(x, {"out": out})


def runs_of(model, times=10**6):
    signature = model_signature(model)
    inputs = {"x": X.astype(model.inputs[0].dtype)}
    cases = [Case("base", inputs, signature.run(inputs))]
    runs, base = moved_runs(signature, cases, times, np.random.default_rng(0))
    return runs, base, signature.run, cases


def is_graph(runs):
    return runs.__qualname__.startswith("_as_graph")


def test_a_long_loop_is_a_graph_and_a_short_one_is_not():
    found = {}
    for steps in (2, 40):
        runs, *_ = runs_of(model_of(Steps(steps)), times=module.WORTH_A_GRAPH // 50)
        found[steps] = is_graph(runs)
    assert found == {2: False, 40: True}
    with runs(0, lambda array, _: array) as run:
        assert operations_of(lambda: run({"x": X})) < 5  # a graph is one


@pytest.mark.parametrize("most", [41, 42])
def test_many_weights_are_no_graph(most, monkeypatch):
    monkeypatch.setattr(module, "MOST_OF_GRAPH", most)  # of 42
    assert is_graph(runs_of(model_of(Steps(40)))[0]) == (most == 42)


def test_weights_are_moved_in_the_graph_and_stay_in_the_model():
    model = model_of(Steps(3))
    before = [np.array(weight) for weight in model.get_weights()]
    runs, (base,), outputs, (case,) = runs_of(model)
    assert is_graph(runs)
    with runs(0, lambda array, _: array) as run:  # nothing is moved
        np.testing.assert_allclose(run({"x": X})["out"], base["out"], rtol=1e-6)
    np.testing.assert_allclose(base["out"], case.outputs["out"], rtol=1e-6)
    with runs(0, lambda array, _: array * 3) as run:
        found = run({"x": X})["out"]
        for weight, kept in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, kept)
    model.set_weights([weight * 3 for weight in before])
    np.testing.assert_allclose(found, outputs({"x": X})["out"], rtol=1e-6)


def test_rows_of_a_table_and_columns_of_a_matrix_have_a_unit_each():
    ids = keras.Input((None,), dtype="int32", name="x")
    runs, *_ = runs_of(keras.Model(ids, {"out": layers.Dense(3)(layers.Embedding(5, 4)(ids))}))
    axes = {}
    with runs(0, lambda array, axis: axes.update({array.shape: axis}) or array):
        pass
    assert axes == {(5, 4): -1, (4, 3): -2, (3,): -2}


def test_what_saturates_moves_by_other_shares_in_each_run_and_number():
    runs, (base,), *_ = runs_of(model_of(layers.Lambda(gates, output_shape=(5, 6))))
    assert is_graph(runs)
    with runs(10**5, lambda array, _: array) as run:
        found = np.stack([run({"x": X})["out"] - base["out"] for _ in range(2)])  # runs, examples, steps, numbers
    assert len(np.unique(found)) == found.size
    assert 1e-3 < np.abs(found).max() < 0.2
    assert len({*np.sign(found.mean((1, 3))).ravel()}) == 2  # what is the same for all of a step


def test_limits_do_not_hang_on_a_seed_of_tensorflow(monkeypatch):
    monkeypatch.setattr(module, "WORTH_A_GRAPH", 0)
    model = model_of(Steps(3))
    found = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        found.append(rounding(model, {"x": X})[0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("worth", [0, np.inf], ids=["as a graph", "one by one"])
def test_in_float64(worth, monkeypatch):
    monkeypatch.setattr(module, "WORTH_A_GRAPH", worth)
    x = keras.Input((6,), dtype="float64", name="x")
    model = keras.Model(x, {"out": layers.Dense(6, "sigmoid", dtype="float64")(x)})
    assert is_graph(runs_of(model, times=1)[0]) == (worth == 0)
    assert 0 < rounding(model, {"x": X.astype("float64")})[0].max() < 1e-13


def test_integers_are_the_same_or_not():
    found = [np.arange(4), np.arange(4, dtype="int32"), np.arange(1, 5), np.arange(4)[:, None]]
    same = [is_same_model({"out": each}, {"out": np.arange(4)}) for each in found]
    assert same == [True, False, False, False]


def test_weights_that_outputs_choose_by_are_seen():
    """Halves of all of them would choose the same."""
    model = model_of(layers.Dense(6), layers.Lambda(lambda x: keras.ops.argsort(x, -1)))
    assert is_graph(runs_of(model)[0])


def test_a_graph_that_is_another_model_is_none():
    runs, base, *_ = runs_of(model_of(eagerly()))
    assert not is_graph(runs)
    np.testing.assert_array_equal(base[0]["out"], X)


def test_what_a_graph_does_otherwise_is_no_rounding(monkeypatch):
    """Even where the graph passes for the model."""
    monkeypatch.setattr(module, "is_same_model", lambda *_: True)
    monkeypatch.setattr(module, "WORTH_A_GRAPH", 0)
    limit, _ = rounding(model_of(eagerly()), {"x": X})
    assert np.all(limit < 1e-4 * (1e-3 + np.abs(X)))


def test_what_cannot_be_traced_runs_one_by_one():
    untraceable = layers.Lambda(lambda x: x * float(np.asarray(x).max() > -9), output_shape=(6,))
    runs, (base,), *_ = runs_of(model_of(untraceable))
    with runs(0, lambda array, _: array) as run:
        np.testing.assert_array_equal(run({"x": X})["out"], base["out"])
    assert not is_graph(runs)


def test_the_tf_function_of_a_layer_is_inlined_and_keeps_its_own_traces():
    traced = layers.Lambda(tf.function(lambda x: keras.ops.sigmoid(x)))
    model = model_of(layers.Dense(6), traced)
    runs, *_ = runs_of(model)
    assert is_graph(runs)
    signature = model_signature(model, None)
    later = tf.function(signature.call, autograph=False)
    definition = later.get_concrete_function({"x": tf.TensorSpec((None, 6))}).graph.as_graph_def()
    nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
    assert "Sigmoid" in {node.op for node in nodes}
    assert not [node.name for node in nodes if "Random" in node.op]
