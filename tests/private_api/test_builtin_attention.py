"""Intercepted attention of Keras's layers: replaced results, other threads, and restored methods."""

import threading

import keras
import numpy as np
import pytest

from keras_attn_export._private_api.builtin_attention import intercept_builtin_attention

LAYERS = {
    keras.layers.MultiHeadAttention: (2, 3),
    keras.layers.GroupQueryAttention: (3, 4, 2),
    keras.layers.Attention: (),
    keras.layers.AdditiveAttention: (),
}
X = keras.ops.convert_to_tensor(np.random.default_rng(0).standard_normal((2, 3, 6)).astype("float32"))
METHODS = ("call", "_compute_attention", "_compute_attention_mask")


def read_methods():
    return {(owner, name): getattr(owner, name, None) for owner in LAYERS for name in METHODS}


@pytest.fixture(autouse=True)
def _check_methods_are_restored():
    methods = read_methods()
    yield
    assert read_methods() == methods


def call(layer):
    return layer([X, X]) if isinstance(layer, keras.layers.Attention) else layer(X, X)


@pytest.fixture(params=LAYERS, ids=lambda layer_type: layer_type.__name__)
def layer(request):
    return request.param(*LAYERS[request.param])


def return_zeros(attention):
    return keras.ops.zeros_like(attention.original()[0]), None


def test_result_is_replaced_unless_the_handler_returns_none(layer):
    expected, calls = call(layer), []
    with intercept_builtin_attention(calls.append):
        np.testing.assert_array_equal(call(layer), expected)
        call(type(layer).from_config({**layer.get_config(), "dtype": "float16"}))  # float16 is not intercepted
    assert [attention.layer for attention in calls] == [layer]
    with intercept_builtin_attention(return_zeros):
        output = call(layer)
    assert np.abs(output).max() < np.abs(expected).max()
    np.testing.assert_array_equal(call(layer), expected)
    with pytest.raises(ZeroDivisionError), intercept_builtin_attention(lambda _: 1 / 0):
        call(layer)


def test_other_threads_are_not_intercepted(layer):
    """The context of the main thread ends before the context of the other thread, which began later."""
    expected, calls, outputs = call(layer), [], []
    other_context_began, main_context_ended = threading.Event(), threading.Event()

    def run_other_thread():
        outputs.append(call(layer))
        with intercept_builtin_attention(return_zeros):
            other_context_began.set()
            main_context_ended.wait(60)
            outputs.append(call(layer))

    thread = threading.Thread(target=run_other_thread)
    with intercept_builtin_attention(calls.append):
        thread.start()
        assert other_context_began.wait(60)
    main_context_ended.set()
    thread.join()
    assert not calls
    np.testing.assert_array_equal(outputs[0], expected)
    assert np.abs(outputs[1]).max() < np.abs(expected).max()
