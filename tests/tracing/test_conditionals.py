"""Conditionals without a tf2onnx mapping: switches with several branches, and constant conditions."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from converted_functions import ConvertedFunction
from keras import ops

X = np.arange(6, dtype="float32").reshape(2, 3)
BRANCHES = (lambda x, y: x * 2, lambda x, y: y - x, lambda x, y: -x, lambda x, y: x + y)


def test_switch_in_a_loop_and_in_a_branch_equals_keras():
    def switch_twice(i, x):
        inner = lambda x, y: ops.switch(i, BRANCHES[2:], x, y)  # noqa: E731
        return ops.switch(i, [*BRANCHES[:2], inner], x, x + 1)

    ConvertedFunction(lambda x: ops.fori_loop(0, 4, switch_twice, x), x=X).assert_parity()


def test_index_without_a_branch_selects_the_last_branch():
    def switch(x, index):
        return tf.switch_case(index, [lambda: x, lambda: x * 2, lambda: x * 3])

    converted = ConvertedFunction(switch, x=X, index=np.array(0, "int32"))
    assert (converted.assert_parity(index=np.array(-7, "int32")) == 3 * X).all()


@pytest.mark.parametrize("length", [1, 6, 7])
def test_constant_conditions_leave_no_branch(length):
    """`associative_scan` branches on odd sizes; its branches gather along an axis that is constant outside of them."""

    def scan(x):
        x = tf.ensure_shape(x, [None, length, 2])
        return tf.concat([ops.associative_scan(tf.add, x, axis=1), ops.associative_scan(tf.add, x, True, -2)], 0)

    converted = ConvertedFunction(scan, x=np.arange(4 * length, dtype="float32").reshape(2, length, 2))
    converted.assert_parity()
    assert "If" not in {node.op_type for node in converted.model.graph.node}


def test_convolution_in_a_branch_has_the_shape_of_its_kernel():
    kernel = tf.Variable(np.arange(8, dtype="float32").reshape(2, 2, 1, 2))

    def convolve(x):
        return tf.nn.bias_add(ops.conv(x, kernel, strides=2), [1.0, 2.0])

    def select(x):
        return ops.cond(ops.shape(x)[1] == 0, lambda: tf.zeros((1, 1, 1, 2)), lambda: convolve(x))

    x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    ConvertedFunction(select, x=x).assert_parity()


def test_branch_may_return_a_tensor_twice():
    def select(x):
        return tf.stack(ops.cond(ops.sum(x) > 0, lambda: (x, x), lambda: (x * 2, x * 3)))

    converted = ConvertedFunction(select, x=X)
    converted.assert_parity(x=-X)


@pytest.mark.parametrize("nesting", ["in a loop", "in a branch"])
def test_recurrent_layer_in_a_loop_or_branch_equals_keras(nesting):
    layer = keras.layers.LSTM(3)
    layer.build((None, 2, 3))

    def call_nested(x):
        if nesting == "in a branch":
            return ops.switch(ops.shape(x)[0] % 2, [layer, lambda x: x[:, 0]], x)
        return ops.fori_loop(0, 2, lambda _, state: layer(x + state[:, None]), x[:, 0])

    converted = ConvertedFunction(call_nested, x=X.reshape(1, 2, 3))
    for rows in (1, 2):
        converted.assert_parity(x=np.resize(X, (rows, 2, 3)))
