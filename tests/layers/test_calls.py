"""What is said of a call whose arguments do not fit: how the layer is called."""

import keras
import numpy as np
import pytest

from keras_attn import AttentionCell, AttentionPooling, AttentionRNN, DotProductAttention

X = np.zeros((2, 5, 4), "float32")


class Own(AttentionPooling):
    def score(self, queries, keys):
        raise TypeError("of its own")


def recurrent():
    return AttentionRNN(AttentionCell(keras.layers.GRUCell(3), DotProductAttention()))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Own()(), r"`Own` cannot be called like this: missing .*'queries'. Received: nothing. Call it as"),
        (lambda: Own()((X, X)), "Received: a tuple of 2"),
        (lambda: Own()(None), "Received: NoneType."),
        (lambda: Own()(X, X, lens=2), r"'lens'. Received: a tensor, a tensor, `lens`.*values_mask`.$"),
        (lambda: recurrent()(X), r"missing .*'memory'. Received: a tensor. Call it as `layer\(inputs, memory\)`"),
        (lambda: recurrent()(keras.Input((5, 4))), "missing .*'memory'. Received: a tensor"),
    ],
)
def test_arguments_that_do_not_fit(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_another_error_is_left_as_it_is():
    with pytest.raises(TypeError, match=r"(?s)^(?!.*cannot be called).*of its own"):
        Own()(X, X, X)
