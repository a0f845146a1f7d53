"""Keras's attention layers are taken hold of in one context and one thread, and are as they were afterwards."""

import threading

import keras
import numpy as np
import pytest

from keras_attn_export._internals.stock_attention import is_stock_attention, through_stock_attention

LAYERS = {
    keras.layers.MultiHeadAttention: lambda: keras.layers.MultiHeadAttention(2, 3),
    keras.layers.GroupQueryAttention: lambda: keras.layers.GroupQueryAttention(3, 4, 2),
    keras.layers.Attention: keras.layers.Attention,
    keras.layers.AdditiveAttention: keras.layers.AdditiveAttention,
}
METHODS = ("call", "_compute_attention", "_compute_attention_mask")


def methods():
    return {(owner, name): getattr(owner, name, None) for owner in LAYERS for name in METHODS}


@pytest.fixture(autouse=True)
def _unchanged():
    before = methods()
    yield
    assert methods() == before


def called(layer, x):
    return layer([x, x]) if isinstance(layer, keras.layers.Attention) else layer(x, x)


@pytest.fixture(params=LAYERS, ids=lambda each: each.__name__)
def layer(request):
    return LAYERS[request.param]()


@pytest.fixture
def x():
    return keras.ops.convert_to_tensor(np.random.default_rng(0).standard_normal((2, 3, 6)).astype("float32"))


def zeros(attention):
    return keras.ops.zeros_like(attention.compute()[0]), None


def test_another_result_and_none_for_the_own(layer, x):
    expected = called(layer, x)
    seen = []
    with through_stock_attention(seen.append):
        np.testing.assert_array_equal(called(layer, x), expected)
    assert [attention.layer for attention in seen] == [layer]
    with through_stock_attention(zeros):
        other = called(layer, x)
    assert np.abs(other).max() < np.abs(expected).max()
    np.testing.assert_array_equal(called(layer, x), expected)
    with pytest.raises(ZeroDivisionError), through_stock_attention(lambda _: 1 / 0):
        called(layer, x)


def test_other_threads_are_left_alone(layer, x):
    """Also where their contexts end in another order than they began."""
    expected, seen, found = called(layer, x), [], []
    inside, ended = threading.Event(), threading.Event()

    def other():
        found.append(called(layer, x))
        with through_stock_attention(zeros):
            inside.set()
            ended.wait(60)
            found.append(called(layer, x))

    thread = threading.Thread(target=other)
    with through_stock_attention(seen.append):
        thread.start()
        assert inside.wait(60)
    ended.set()
    thread.join()
    assert not seen
    np.testing.assert_array_equal(found[0], expected)
    assert np.abs(found[1]).max() < np.abs(expected).max()


class Derived(keras.layers.MultiHeadAttention):
    pass


def test_derived_classes_are_their_own(x):
    layer = Derived(2, 3)
    assert not is_stock_attention(layer)
    seen = []
    with through_stock_attention(seen.append):
        layer(x, x, use_causal_mask=True)
    assert not seen
    assert all(is_stock_attention(make()) for make in LAYERS.values())


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_dtypes_are_not_held(layer, x, dtype):
    other, seen = type(layer).from_config({**layer.get_config(), "dtype": dtype}), []
    with through_stock_attention(seen.append):
        called(other, x)
    assert not seen
