"""Additive attention: its kernels, their options, and the ways Keras changes and saves them."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from backends import every_fit_mode
from contract_cases import as_numpy
from keras import ops
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, MultiHeadAttention

B, Tq, Tk, Dq, Dk, Dv, U = 2, 3, 5, 4, 6, 7, 8


def arrays():
    rng = np.random.default_rng(0)
    shapes = {"queries": (B, Tq, Dq), "keys": (B, Tk, Dk), "values": (B, Tk, Dv)}
    return {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()} | {
        "valid_lens": np.array([2, 4], "int32")
    }


def model_of(layer):
    inputs = {
        "queries": keras.Input((None, Dq), name="queries"),
        "keys": keras.Input((None, Dk), name="keys"),
        "values": keras.Input((None, Dv), name="values"),
        "valid_lens": keras.Input((), dtype="int32", name="valid_lens"),
    }
    return keras.Model(inputs, layer(**inputs))


def result(model):
    return ops.convert_to_numpy(model(arrays()))


def test_it_owns_three_kernels_of_these_names_and_shapes():
    layer = AdditiveAttention(U, name="attention")
    layer.build((None, Tq, Dq), (None, Tk, Dk), (None, Tk, Dv))
    shapes = {variable.path: variable.shape for variable in layer.weights}
    assert shapes == {
        "attention/W_q/kernel": (Dq, U),
        "attention/W_k/kernel": (Dk, U),
        "attention/w_v/kernel": (U, 1),
    }


def test_one_initializer_object_does_not_make_equal_kernels():
    layer = AdditiveAttention(U, kernel_initializer=keras.initializers.RandomNormal())
    layer.build((B, Tq, Dq), (B, Tk, Dq), (B, Tk, Dv))
    assert not np.array_equal(*layer.get_weights()[:2])


def test_options_apply_to_all_three_kernels():
    layer = AdditiveAttention(U, kernel_initializer="ones", kernel_regularizer="l1", kernel_constraint="unit_norm")
    model_of(layer)
    assert_close(ops.convert_to_numpy(sum(layer.losses)), np.float32(0.01 * (Dq * U + Dk * U + U)))
    assert all(variable.constraint is layer.kernel_constraint for variable in layer.weights)


def test_config_holds_every_option():
    options = {
        "num_hiddens": U,
        "dropout": 0.25,
        "seed": 3,
        "normalizer": "sigmoid",
        "normalize": True,
        "query_block_size": 16,
        "kernel_initializer": keras.initializers.HeNormal(seed=1),
        "kernel_regularizer": keras.regularizers.L2(0.5),
        "kernel_constraint": keras.constraints.MaxNorm(3),
        "name": "attention",
        "dtype": "mixed_bfloat16",
        "trainable": False,
    }
    config = AdditiveAttention(**options).get_config()
    assert set(config) == set(options)
    assert AdditiveAttention.from_config(config).get_config() == config


@pytest.mark.parametrize("block_size", [None, 16, "auto"])
def test_a_saved_layer_keeps_its_blocks(block_size):
    config = AdditiveAttention(U, query_block_size=block_size).get_config()
    assert AdditiveAttention.from_config(config).query_block_size == block_size
    assert (
        MultiHeadAttention.from_config(
            MultiHeadAttention(AdditiveAttention(U, query_block_size=block_size), 2).get_config()
        ).attention.query_block_size
        == block_size
    )


def test_a_layer_that_was_saved_before_there_were_blocks_has_none():
    assert AdditiveAttention(U).query_block_size == "auto"
    config = AdditiveAttention(U).get_config()
    del config["query_block_size"]
    assert AdditiveAttention.from_config(config).query_block_size is None


class OfOneSize(AdditiveAttention):
    """Has arguments of its own."""

    def __init__(self, **kwargs):
        super().__init__(U, query_block_size=3, **kwargs)

    def get_config(self):
        return {"name": self.name}


def test_a_subclass_with_arguments_of_its_own_is_made_from_them():
    assert OfOneSize.from_config(OfOneSize().get_config()).query_block_size == 3


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"num_hiddens": 0}, ValueError, r"`num_hiddens` must be at least 1\. Received: num_hiddens=0"),
        ({"num_hiddens": 8.0}, TypeError, r"`num_hiddens` must be an integer.*type float"),
        ({"num_hiddens": True}, TypeError, r"`num_hiddens` must be an integer.*type bool"),
        ({"query_block_size": 0}, ValueError, r"`query_block_size` must be at least 1\. Received: query_block_size=0"),
        (
            {"query_block_size": -2},
            ValueError,
            r"`query_block_size` must be at least 1.*query_block_size=-2",
        ),
        ({"query_block_size": 2.0}, TypeError, r"`query_block_size` must be an integer.*type float"),
        ({"query_block_size": True}, TypeError, r"`query_block_size` must be an integer.*type bool"),
        ({"query_block_size": "Auto"}, ValueError, r"must be an integer, \"auto\" or None.*query_block_size='Auto'"),
    ],
)
def test_bad_options_are_refused(options, error, sentence):
    options = {"num_hiddens": U, **options}
    with pytest.raises(error, match=sentence):
        AdditiveAttention(**options)


def test_a_size_must_be_known_when_the_kernels_are_made():
    queries, keys, values = keras.Input((Tq, Dq)), keras.Input((Tk, None)), keras.Input((Tk, Dv))
    with pytest.raises(ValueError, match=r"last axis of `keys` must be known.*`W_k`.*\(None, 5, None\)"):
        AdditiveAttention(U)(queries, keys, values)


def test_a_shared_layer_takes_other_lengths_and_refuses_other_sizes():
    layer = AdditiveAttention(U)
    layer(keras.Input((Tq, Dq)), keras.Input((Tk, Dk)), keras.Input((Tk, Dv)))
    keys, values = keras.Input((9, Dk)), keras.Input((9, 2))
    assert layer(keras.Input((1, Dq)), keys, values).shape == (None, 1, 2)
    wrong = keras.Input((Tq, 5))
    with pytest.raises(ValueError, match=r"last axis of `queries` must be 4.*`W_q`.*\(None, 3, 5\)"):
        layer(wrong, keys, values)


def test_weights_file_round_trip(tmp_path):
    model, other = model_of(AdditiveAttention(U)), model_of(AdditiveAttention(U))
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    assert_identical(result(other), result(model))


def test_a_fresh_process_that_imports_only_keras_and_the_package_loads_it(tmp_path):
    model = model_of(AdditiveAttention(U, dropout=0.5, seed=1))
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "inputs.npz", **arrays())
    program = (
        "import sys, keras, keras_attn, numpy; "
        "model = keras.models.load_model('model.keras'); "
        "numpy.save('output.npy', keras.ops.convert_to_numpy(model(dict(numpy.load('inputs.npz')))))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert_identical(np.load(tmp_path / "output.npy"), result(model))


def test_lora_trains_its_factors_and_reloads_merged(tmp_path):
    layer = AdditiveAttention(U)
    model = model_of(layer)
    layer.W_q.enable_lora(2)
    layer.W_k.enable_lora(2)
    before = result(model)
    assert {variable.name for variable in layer.W_q.trainable_variables} == {"lora_kernel_a", "lora_kernel_b"}
    model.compile(keras.optimizers.SGD(10.0), "mse")
    model.fit(arrays(), np.ones((B, Tq, Dv)), verbose=0)
    assert not np.array_equal(result(model), before)
    model.save(tmp_path / "model.keras")
    assert_close(result(keras.models.load_model(tmp_path / "model.keras")), result(model))


def test_int8_kernels_survive_being_saved_twice(tmp_path):
    layer = AdditiveAttention(U, name="attention")
    model = model_of(layer)
    before = result(model)
    for dense in (layer.W_q, layer.W_k, layer.w_v):
        dense.quantize("int8")
    # One step of int8 is 1/127 of the largest entry of a kernel or input.
    assert_close(result(model), before, tolerance=0.05)
    model.save(tmp_path / "first.keras")
    first = keras.models.load_model(tmp_path / "first.keras")
    first.save(tmp_path / "second.keras")
    second = keras.models.load_model(tmp_path / "second.keras")
    kernel = second.get_layer("attention").W_q.kernel
    assert keras.backend.standardize_dtype(kernel.dtype) == "int8"
    assert_identical(result(second), result(model))


@every_fit_mode
def test_it_trains_in_mixed_precision(jit_compile):
    model = model_of(AdditiveAttention(U, dropout=0.1, seed=1, dtype="mixed_float16"))
    before = model.get_weights()
    model.compile("sgd", "mse", jit_compile=jit_compile)
    losses = model.fit(arrays(), np.zeros((B, Tq, Dv)), epochs=2, verbose=0).history["loss"]
    assert np.all(np.isfinite(losses))
    assert not any(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))


def normalized(num_hiddens=8, **options):
    layer = AdditiveAttention(num_hiddens, normalize=True, **options)
    layer.build((2, 3, 4), (2, 5, 7), (2, 5, 6))
    return layer


def test_normalized_scores_start_as_those_of_a_direction():
    layer = normalized()
    assert float(as_numpy(layer.g)) == pytest.approx(8**-0.5)
    assert np.all(as_numpy(layer.b) == 0)
    queries, keys = (np.random.default_rng(0).normal(size=(2, *shape)).astype("float32") for shape in ((3, 4), (5, 7)))
    before = as_numpy(layer.score(queries, keys))
    layer.w_v.kernel.assign(7.0 * as_numpy(layer.w_v.kernel))  # its length does not count
    assert_close(as_numpy(layer.score(queries, keys)), before, "float32")
    layer.g.assign(3.0 * as_numpy(layer.g))
    assert_close(as_numpy(layer.score(queries, keys)), 3.0 * before, "float32")


def test_normalized_scores_with_int8_kernels():
    layer = normalized(64)
    queries, keys = (np.random.default_rng(0).normal(size=(2, *shape)).astype("float32") for shape in ((3, 4), (5, 7)))
    exact = as_numpy(layer.score(queries, keys))
    for dense in (layer.W_q, layer.W_k, layer.w_v):
        dense.quantize("int8")
    np.testing.assert_allclose(as_numpy(layer.score(queries, keys)), exact, atol=0.03 * np.abs(exact).max())


def test_normalize_must_be_a_bool():
    with pytest.raises(TypeError, match="`normalize` must be True or False"):
        AdditiveAttention(8, normalize="yes")


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("factor", [1e-4, 1.0, 300.0])
def test_the_size_of_w_v_does_not_count_in_half_precision_either(policy, factor):
    queries, keys = (np.random.default_rng(0).normal(size=(2, *shape)).astype("float32") for shape in ((3, 4), (5, 7)))
    layer, half = normalized(16), normalized(16, dtype=policy)
    half.set_weights(layer.get_weights())
    half.w_v.kernel.assign(factor * as_numpy(layer.w_v.kernel))
    _, weights = half(queries, keys, keys, return_attention_scores=True)
    _, exact = layer(queries, keys, keys, return_attention_scores=True)
    np.testing.assert_allclose(as_numpy(ops.cast(weights, "float32")), as_numpy(exact), atol=0.01)


def test_w_v_of_zeros_scores_zero():
    layer = normalized()
    layer.w_v.kernel.assign(np.zeros((8, 1)))
    assert np.all(as_numpy(layer.score(np.ones((2, 3, 4), "float32"), np.ones((2, 5, 7), "float32"))) == 0)
