"""`AdditiveAttention`: kernels, `query_block_size` in a config, and normalized scores."""

import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import to_numpy
from tolerances import assert_close

from keras_attn import AdditiveAttention

Tq, Tk, Dq, Dk, Dv, U = 3, 5, 4, 6, 7, 8


def test_layer_has_three_named_kernels():
    layer = AdditiveAttention(U, name="attention")
    layer.build((None, Tq, Dq), (None, Tk, Dk), (None, Tk, Dv))
    shapes = {variable.path: variable.shape for variable in layer.weights}
    assert shapes == {
        "attention/W_q/kernel": (Dq, U),
        "attention/W_k/kernel": (Dk, U),
        "attention/w_v/kernel": (U, 1),
    }


def test_old_config_without_query_block_size_disables_blocks():
    assert AdditiveAttention(U).query_block_size == "auto"
    config = AdditiveAttention(U).get_config()
    del config["query_block_size"]
    assert AdditiveAttention.from_config(config).query_block_size is None


class FixedSizeAttention(AdditiveAttention):
    """Subclass with other constructor arguments than its base class."""

    def __init__(self, **kwargs):
        super().__init__(U, query_block_size=3, **kwargs)

    def get_config(self):
        return {"name": self.name}


def test_subclass_with_its_own_arguments_is_restored_from_its_config():
    assert FixedSizeAttention.from_config(FixedSizeAttention().get_config()).query_block_size == 3


def test_dynamic_size_of_keys_is_rejected():
    queries, keys, values = keras.Input((Tq, Dq)), keras.Input((Tk, None)), keras.Input((Tk, Dv))
    with pytest.raises(ValueError, match=r"last axis of `keys` must be known.*`W_k`.*\(None, 5, None\)"):
        AdditiveAttention(U)(queries, keys, values)


def build_normalized_layer(num_hiddens=8, **options):
    layer = AdditiveAttention(num_hiddens, normalize=True, **options)
    layer.build((2, 3, 4), (2, 5, 7), (2, 5, 6))
    return layer


def draw_queries_and_keys():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 3, 4)).astype("float32"), rng.normal(size=(2, 5, 7)).astype("float32")


def test_normalized_scores_do_not_depend_on_the_length_of_w_v():
    layer = build_normalized_layer()
    assert float(to_numpy(layer.g)) == pytest.approx(8**-0.5)
    assert np.all(to_numpy(layer.b) == 0)
    queries, keys = draw_queries_and_keys()
    scores = to_numpy(layer.score(queries, keys))
    layer.w_v.kernel.assign(7.0 * to_numpy(layer.w_v.kernel))
    assert_close(to_numpy(layer.score(queries, keys)), scores, "float32")
    layer.g.assign(3.0 * to_numpy(layer.g))
    assert_close(to_numpy(layer.score(queries, keys)), 3.0 * scores, "float32")


@pytest.mark.slow
def test_normalized_scores_accept_int8_kernels():
    layer = build_normalized_layer(64)
    queries, keys = draw_queries_and_keys()
    scores = to_numpy(layer.score(queries, keys))
    for dense in (layer.W_q, layer.W_k, layer.w_v):
        dense.quantize("int8")
    np.testing.assert_allclose(to_numpy(layer.score(queries, keys)), scores, atol=0.03 * np.abs(scores).max())


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("factor", [1e-4, 300.0])
def test_normalized_weights_do_not_depend_on_the_length_of_w_v_in_half_precision(policy, factor):
    queries, keys = draw_queries_and_keys()
    layer, half_layer = build_normalized_layer(16), build_normalized_layer(16, dtype=policy)
    half_layer.set_weights(layer.get_weights())
    half_layer.w_v.kernel.assign(factor * to_numpy(layer.w_v.kernel))
    _, weights = half_layer(queries, keys, keys, return_attention_scores=True)
    _, expected = layer(queries, keys, keys, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(ops.cast(weights, "float32")), to_numpy(expected), atol=0.01)


def test_normalized_scores_are_zero_for_a_zero_w_v():
    layer = build_normalized_layer()
    layer.w_v.kernel.assign(np.zeros((8, 1)))
    assert np.all(to_numpy(layer.score(np.ones((2, 3, 4), "float32"), np.ones((2, 5, 7), "float32"))) == 0)
