"""Bilinear attention beyond the contract."""

import numpy as np
from contract_cases import as_numpy
from tolerances import assert_close

from keras_attn import BilinearAttention, DotProductAttention


def test_with_the_identity_it_is_the_dot_product():
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(2, length, 4)).astype("float32") for length in (3, 5, 5)]
    layer = BilinearAttention()
    layer.build(*(array.shape for array in inputs))
    layer.W.kernel.assign(np.eye(4))
    plain = DotProductAttention(scale=1.0)(*inputs, np.array([2, 5]))
    assert_close(as_numpy(layer(*inputs, np.array([2, 5]))), as_numpy(plain), "float32")


def test_variance_of_the_scores_at_the_start_is_what_the_docstring_says():
    Dq, Dk = 40, 60
    rng = np.random.default_rng(1)
    layer = BilinearAttention(kernel_initializer="glorot_uniform")
    queries, keys = rng.normal(size=(1, 300, Dq)).astype("float32"), rng.normal(size=(1, 300, Dk)).astype("float32")
    layer.build(queries.shape, keys.shape, keys.shape)
    variance = float(np.var(as_numpy(layer.score(queries, keys))))
    assert abs(variance / (2 * Dq * Dk / (Dq + Dk)) - 1) < 0.1
