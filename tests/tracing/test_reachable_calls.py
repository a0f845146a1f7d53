"""Reachable calls: calls that outputs depend on, through states of loops and both branches of conditionals."""

import pytest
import tensorflow as tf

from keras_attn_export._tracing.reachable_calls import find_reachable_calls


def build_call(op):
    """Return a function in place of the call of a layer; its result does not matter."""
    return tf.function(lambda x: x * 2.0, autograph=False, experimental_implements=op)


def list_reachable_calls(function):
    """Return the ops of the calls that the first output of a function of one tensor depends on."""
    spec = tf.TensorSpec([None], tf.float32)
    graph = tf.function(function, autograph=False).get_concrete_function(spec).graph.as_graph_def()
    ops = {node.signature.name: node.attr["_implements"].s.decode() for node in graph.library.function}
    ops = {name: op for name, op in ops.items() if op}
    outputs = [node.input[0] for node in graph.node if node.name == "Identity"]
    return find_reachable_calls(graph, outputs, ops)


A, B, C = (build_call(op) for op in "abc")


def call_in_states(x):
    """Return the first state of a loop, which depends on the second state of the step before, but not on the third."""

    def body(i, first, second, third):
        return i + 1, first + second, B(second), C(third)

    return tf.while_loop(lambda i, *_: i < 3, body, (0, A(x), x, x))[1], x


def call_in_branches(x):
    def body(i, y):
        return i + 1, tf.cond(i > 1, lambda: B(y), lambda: tf.while_loop(lambda j, _: j < i, inner, (0, A(y)))[1])

    def inner(j, z):
        return j + 1, C(z)

    return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1], x


@pytest.mark.parametrize(
    ("function", "expected"),
    [(call_in_states, "ab"), (call_in_branches, "abc")],
)
def test_reachable_calls_are_calls_that_outputs_depend_on(function, expected):
    assert list_reachable_calls(lambda x: tf.nest.flatten(function(x))[0]) == set(expected)
