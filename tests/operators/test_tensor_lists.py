"""A `TensorArray` that a loop writes holds in ONNX what it does in TensorFlow: elements in their places, else zeros."""

import numpy as np
import pytest
import tensorflow as tf
from traced_functions import Converted

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


def test_a_loop_that_ends_early_leaves_zeros():
    converted = of_steps(lambda x, steps: written(x, steps, at_the_step))
    for steps in (1, 3, 5):
        found = converted.assert_same(steps=np.array(steps, "int32"))
        assert found.shape == (5, 2, 3)
        assert not found[steps:].any()
        assert found[steps - 1].all()


@pytest.mark.slow
def test_zeros_of_other_dtypes():
    def all_dtypes(x, steps):
        dtypes = (tf.int32, tf.int64, tf.bool, tf.float64)
        return tf.stack([tf.cast(written(x, steps, at_the_step, dtype=dtype), tf.float64) for dtype in dtypes])

    assert of_steps(all_dtypes).assert_same().any((1, 2, 3)).all()


@pytest.mark.slow
def test_elements_are_where_their_index_says():
    """From the last to the first, every other, not from the first on, and the same again and again: the last counts."""

    def all_ways(x, steps):
        ways = ((4, -1, 5), (3, -1, 2), (0, 2, 3), (1, 1, 3), (2, 0, 3))
        found = [written(x, tf.minimum(steps, most), at_the_step, start=start, step=step) for start, step, most in ways]
        return tf.stack(found)

    converted = of_steps(all_ways, 5)
    converted.assert_same()
    converted.assert_same(steps=np.array(1, "int32"))


def test_several_elements_in_one_step():
    def write(made, i, value):
        return made.write(2 * i, value).write(2 * i + 1, -value)

    converted = of_steps(lambda x, steps: written(x, steps, write, size=8))
    assert converted.assert_same()[5].sum() == -4 * X.sum()


@pytest.mark.parametrize("step", [1, 2])
def test_one_that_grows_is_as_long_as_it_is_written(step):
    converted = of_steps(lambda x, steps: written(x, steps, at_the_step, size=0, step=step, dynamic_size=True))
    assert converted.assert_same().shape == (1 + 2 * step, 2, 3)
    assert step > 1 or converted.model.graph.node[-1].op_type == "Loop"  # which writes all


def written_while(goes_on, x, end, moves=0):
    """What a loop writes from the first place on while its step, an end that may move and the value say so."""

    def body(i, end, value, made):
        return i + 1, end - moves if moves else end, value * 2, made.write(i, value)

    return tf.while_loop(lambda i, end, value, _: goes_on(i, end, value), body, (0, end, x, array(end)))[-1].stack()


def test_nothing_is_added_where_the_loop_writes_all():
    converted = Converted(lambda x: written_while(lambda i, end, _: i < end, x, tf.shape(x)[0]), x=X)
    converted.assert_same()
    assert converted.model.graph.node[-1].op_type == "Loop"


def test_a_loop_that_may_end_before_its_last_step_is_not_taken_for_one_that_writes_all():
    goes_on = lambda i, end, value: (i < end) & (tf.reduce_max(value) < 20)  # noqa: E731
    converted = Converted(lambda x: written_while(goes_on, x, 5), x=X)
    assert not converted.assert_same()[2:].any()
    assert converted.assert_same(x=X / 10)[4].all()


def test_an_end_that_the_loop_moves_is_not_taken_for_the_length():
    converted = Converted(lambda x: written_while(lambda i, end, _: i < end, x, 4, moves=1), x=X)
    assert not converted.assert_same()[2:].any()


@pytest.mark.slow
def test_a_loop_in_a_loop_writes_its_own():
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
    "reads what it writes": (lambda x: array(6, clear_after_read=False), reading),
    "only sometimes": (lambda x: array(6), lambda made, i, x: tf.cond(i > 0, lambda: made.write(i, x), lambda: made)),
}


@pytest.mark.parametrize(("made", "write"), NO_FORM.values(), ids=NO_FORM)
def test_what_has_no_form_is_refused(made, write):
    def function(x, steps):
        return tf.while_loop(lambda i, _: i < steps, lambda i, to: (i + 1, write(to, i, x)), (0, made(x)))[-1].stack()

    with pytest.raises(UnsupportedModelError, match="writes a `TensorArray` in a way that has no form in ONNX"):
        of_steps(function)
