"""`TensorArray` in ONNX: elements in their places and zeros elsewhere, also without a loop and in `keras.ops.scan`."""

import numpy as np
import pytest
import tensorflow as tf
from converted_functions import Converted
from keras import ops

from keras_attn_export import UnsupportedModelError

X = np.array([[1, 2, 3], [4, 5, 6]], "float32")


def of_steps(function, steps=3):
    return Converted(function, x=X, steps=np.array(steps, "int32"))


def array(size, dtype=tf.float32, **options):
    return tf.TensorArray(dtype, size, element_shape=(None, 3), **options)


def written(x, steps, write, *, size=5, start=0, step=1, dtype=tf.float32, **options):
    """What a loop of some steps writes by `write(array, i, value)`, where `i` goes from `start`, and the value on."""

    def body(taken, i, value, made):
        return taken + 1, i + step, value * 2, write(made, i, tf.cast(value, dtype))

    first = (0, start, x, array(size, dtype, **options))
    return tf.while_loop(lambda taken, *_: taken < steps, body, first)[-1].stack()


def at_the_step(made, i, value):
    return made.write(i, value)


def test_loop_that_ends_early_leaves_zeros():
    converted = of_steps(lambda x, steps: written(x, steps, at_the_step))
    for steps in (1, 3, 5):
        found = converted.assert_same(steps=np.array(steps, "int32"))
        assert found.shape == (5, 2, 3)
        assert not found[steps:].any()
        assert found[steps - 1].all()


@pytest.mark.slow
def test_elements_of_other_dtypes_have_zeros():
    def all_dtypes(x, steps):
        dtypes = (tf.int32, tf.int64, tf.bool, tf.float64)
        return tf.stack([tf.cast(written(x, steps, at_the_step, dtype=dtype), tf.float64) for dtype in dtypes])

    assert of_steps(all_dtypes).assert_same().any((1, 2, 3)).all()


@pytest.mark.slow
def test_elements_are_written_at_their_index():
    """From the last to the first, every other, not from the first on, and the same again and again: the last counts."""

    def all_ways(x, steps):
        ways = ((4, -1, 5), (3, -1, 2), (0, 2, 3), (1, 1, 3), (2, 0, 3))
        found = [written(x, tf.minimum(steps, most), at_the_step, start=start, step=step) for start, step, most in ways]
        return tf.stack(found)

    converted = of_steps(all_ways, 5)
    converted.assert_same()
    converted.assert_same(steps=np.array(1, "int32"))


def test_loop_may_write_several_elements_in_a_step():
    def write(made, i, value):
        return made.write(2 * i, value).write(2 * i + 1, -value)

    converted = of_steps(lambda x, steps: written(x, steps, write, size=8))
    assert converted.assert_same()[5].sum() == -4 * X.sum()


@pytest.mark.parametrize("step", [1, 2])
def test_dynamic_array_has_the_length_that_is_written(step):
    converted = of_steps(lambda x, steps: written(x, steps, at_the_step, size=0, step=step, dynamic_size=True))
    assert converted.assert_same().shape == (1 + 2 * step, 2, 3)
    assert step > 1 or converted.model.graph.node[-1].op_type == "Loop"  # which writes all


def written_while(goes_on, x, end, moves=0):
    """What a loop writes from the first place on while its step, an end that may move and the value say so."""

    def body(i, end, value, made):
        return i + 1, end - moves if moves else end, value * 2, made.write(i, value)

    return tf.while_loop(lambda i, end, value, _: goes_on(i, end, value), body, (0, end, x, array(end)))[-1].stack()


def test_loop_that_writes_all_needs_no_padding():
    converted = Converted(lambda x: written_while(lambda i, end, _: i < end, x, tf.shape(x)[0]), x=X)
    converted.assert_same()
    assert converted.model.graph.node[-1].op_type == "Loop"


def test_loop_with_another_condition_leaves_zeros():
    goes_on = lambda i, end, value: (i < end) & (tf.reduce_max(value) < 20)  # noqa: E731
    converted = Converted(lambda x: written_while(goes_on, x, 5), x=X)
    assert not converted.assert_same()[2:].any()
    assert converted.assert_same(x=X / 10)[4].all()


def test_loop_with_a_moving_end_leaves_zeros():
    converted = Converted(lambda x: written_while(lambda i, end, _: i < end, x, 4, moves=1), x=X)
    assert not converted.assert_same()[2:].any()


@pytest.mark.slow
def test_nested_loops_write_their_own_arrays():
    def nested(x, steps):
        made = tf.TensorArray(tf.float32, 4, element_shape=(5, None, 3))

        def body(i, made):
            inner = written(x * (1.0 + tf.cast(i, tf.float32)), steps, at_the_step)
            return i + 1, made.write(3 - i, inner)

        return tf.while_loop(lambda i, *_: i < 4, body, (0, made))[-1].stack()

    assert of_steps(nested).assert_same().shape == (4, 5, 2, 3)


def reading(made, i, x):
    made = made.write(i, x)
    return made.write(i + 1, made.read(i) * 2)


NO_FORM = {
    "it reads a `TensorArray` that it writes. Write": (lambda x: array(6, clear_after_read=False), reading),
    "it writes a `TensorArray` only under a condition, .+ or never. Write": (
        lambda x: array(6),
        lambda made, i, x: tf.cond(i > 0, lambda: made.write(i, x), lambda: made),
    ),
}


@pytest.mark.parametrize(("reason", "functions"), NO_FORM.items())
def test_array_read_or_written_conditionally_is_refused(reason, functions):
    made, write = functions

    def function(x, steps):
        return tf.while_loop(lambda i, _: i < steps, lambda i, to: (i + 1, write(to, i, x)), (0, made(x)))[-1].stack()

    with pytest.raises(UnsupportedModelError, match=f"Op `(Stateless)?While` .+ has no mapping to ONNX: {reason}"):
        of_steps(function)


def in_a_line(*tensors):
    return tf.concat([tf.reshape(tf.cast(each, tf.float32), [-1]) for each in tensors], 0)


@pytest.mark.slow
def test_scans_of_several_tensors_none_and_booleans_equal_keras():
    def scanned(x):
        both = ops.scan(lambda c, row: ((c[0] + row["k"], ~c[1]), {"a": c[0], "b": c[1]}), (x[0], True), {"k": x})
        alone = ops.scan(lambda c, _: (c * 2 + 1, c), x[0], None, length=3)
        silent = ops.scan(lambda c, row: (c + row, None), x[0], x)
        return in_a_line(*tf.nest.flatten(both), *alone, silent[0])

    Converted(scanned, x=X).assert_same()


def test_array_written_before_and_in_a_loop_keeps_both():
    def made_of(x):
        made = tf.TensorArray(tf.float32, 6, element_shape=(3,), clear_after_read=False).write(0, x[0])
        go_on = lambda i, made: (i + 1, made.write(i + 1, made.read(i) * 2))  # noqa: E731
        made = tf.while_loop(lambda i, _: i < 4, go_on, (0, made))[1]
        return in_a_line(made.stack(), made.gather([3, 0]), made.size())

    assert Converted(made_of, x=X).assert_same()[12:15].tolist() == (X[0] * 16).tolist()
