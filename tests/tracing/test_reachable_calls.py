"""Calls that the outputs of a graph depend on, through loop states and both branches of conditions."""

import pytest
import tensorflow as tf

from keras_attn_export._tracing.reachable_calls import find_reachable_calls


def call(op):
    """A function that stands for the call of a layer: none of its numbers matter."""
    return tf.function(lambda x: x * 2.0, autograph=False, experimental_implements=op)


def needed(function):
    """The ops of the calls that the first output of a function of one tensor hangs on."""
    spec = tf.TensorSpec([None], tf.float32)
    graph = tf.function(function, autograph=False).get_concrete_function(spec).graph.as_graph_def()
    ops = {node.signature.name: node.attr["_implements"].s.decode() for node in graph.library.function}
    ops = {name: op for name, op in ops.items() if op}
    outputs = [node.input[0] for node in graph.node if node.name == "Identity"]
    return find_reachable_calls(graph, outputs, ops)


A, B, C = (call(op) for op in "abc")


def through_state(x):
    """The second state moves the first a step later; nothing reads the third."""

    def body(i, first, second, third):
        return i + 1, first + second, B(second), C(third)

    return tf.while_loop(lambda i, *_: i < 3, body, (0, A(x), x, x))[1], x


def nested_branches(x):
    def body(i, y):
        return i + 1, tf.cond(i > 1, lambda: B(y), lambda: tf.while_loop(lambda j, _: j < i, inner, (0, A(y)))[1])

    def inner(j, z):
        return j + 1, C(z)

    return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1], x


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (through_state, "ab"),
        (nested_branches, "abc"),
    ],
)
def test_needed_calls_are_those_that_outputs_depend_on(function, expected):
    assert needed(lambda x: tf.nest.flatten(function(x))[0]) == set(expected)
