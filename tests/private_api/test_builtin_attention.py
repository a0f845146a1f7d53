"""Keras's attention layers are taken hold of in one context and one thread, and are as they were afterwards."""

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


def methods():
    return {(owner, name): getattr(owner, name, None) for owner in LAYERS for name in METHODS}


@pytest.fixture(autouse=True)
def _unchanged():
    before = methods()
    yield
    assert methods() == before


def called(layer):
    return layer([X, X]) if isinstance(layer, keras.layers.Attention) else layer(X, X)


@pytest.fixture(params=LAYERS, ids=lambda each: each.__name__)
def layer(request):
    return request.param(*LAYERS[request.param])


def zeros(attention):
    return keras.ops.zeros_like(attention.original()[0]), None


def test_result_is_replaced_unless_none_is_returned(layer):
    expected = called(layer)
    seen = []
    with intercept_builtin_attention(seen.append):
        np.testing.assert_array_equal(called(layer), expected)
        called(type(layer).from_config({**layer.get_config(), "dtype": "float16"}))  # which is left alone
    assert [attention.layer for attention in seen] == [layer]
    with intercept_builtin_attention(zeros):
        other = called(layer)
    assert np.abs(other).max() < np.abs(expected).max()
    np.testing.assert_array_equal(called(layer), expected)
    with pytest.raises(ZeroDivisionError), intercept_builtin_attention(lambda _: 1 / 0):
        called(layer)


def test_other_threads_are_not_intercepted(layer):
    """Also where their contexts end in another order than they began."""
    expected, seen, found = called(layer), [], []
    inside, ended = threading.Event(), threading.Event()

    def other():
        found.append(called(layer))
        with intercept_builtin_attention(zeros):
            inside.set()
            ended.wait(60)
            found.append(called(layer))

    thread = threading.Thread(target=other)
    with intercept_builtin_attention(seen.append):
        thread.start()
        assert inside.wait(60)
    ended.set()
    thread.join()
    assert not seen
    np.testing.assert_array_equal(found[0], expected)
    assert np.abs(found[1]).max() < np.abs(expected).max()
