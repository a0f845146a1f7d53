"""`TensorArray` in ONNX: written elements, zeros at unwritten indices, arrays outside loops and `keras.ops.scan`."""

import numpy as np
import pytest
import tensorflow as tf
from converted_functions import ConvertedFunction
from keras import ops

from keras_attn_export import UnsupportedModelError

X = np.array([[1, 2, 3], [4, 5, 6]], "float32")


def convert(function, steps=3):
    return ConvertedFunction(function, x=X, steps=np.array(steps, "int32"))


def make_array(size, dtype=tf.float32, **options):
    return tf.TensorArray(dtype, size, element_shape=(None, 3), **options)


def run_loop(x, steps, write, *, size=5, start=0, step=1, dtype=tf.float32, **options):
    """Return the array of a loop of `write(array, index, value)`; the index grows by `step` and the value doubles."""

    def body(count, index, value, array):
        return count + 1, index + step, value * 2, write(array, index, tf.cast(value, dtype))

    initial = (0, start, x, make_array(size, dtype, **options))
    return tf.while_loop(lambda count, *_: count < steps, body, initial)[-1].stack()


def write_value(array, index, value):
    return array.write(index, value)


def test_loop_that_ends_early_leaves_zeros():
    converted = convert(lambda x, steps: run_loop(x, steps, write_value))
    for steps in (1, 3, 5):
        output = converted.assert_parity(steps=np.array(steps, "int32"))
        assert output.shape == (5, 2, 3)
        assert not output[steps:].any()
        assert output[steps - 1].all()


@pytest.mark.slow
def test_unwritten_elements_of_every_dtype_are_zeros():
    def write_all_dtypes(x, steps):
        dtypes = (tf.int32, tf.int64, tf.bool, tf.float64)
        return tf.stack([tf.cast(run_loop(x, steps, write_value, dtype=dtype), tf.float64) for dtype in dtypes])

    assert convert(write_all_dtypes).assert_parity().any((1, 2, 3)).all()


@pytest.mark.slow
def test_elements_are_written_at_their_index():
    """Descending indices, every second index, a start above 0, and one index repeatedly, whose last value stays."""

    def write_all_orders(x, steps):
        orders = ((4, -1, 5), (3, -1, 2), (0, 2, 3), (1, 1, 3), (2, 0, 3))
        arrays = [run_loop(x, tf.minimum(steps, end), write_value, start=i, step=step) for i, step, end in orders]
        return tf.stack(arrays)

    converted = convert(write_all_orders, 5)
    converted.assert_parity()
    converted.assert_parity(steps=np.array(1, "int32"))


def test_loop_may_write_several_elements_in_a_step():
    def write(array, index, value):
        return array.write(2 * index, value).write(2 * index + 1, -value)

    converted = convert(lambda x, steps: run_loop(x, steps, write, size=8))
    assert converted.assert_parity()[5].sum() == -4 * X.sum()


@pytest.mark.parametrize("step", [1, 2])
def test_dynamic_array_grows_to_the_largest_index(step):
    converted = convert(lambda x, steps: run_loop(x, steps, write_value, size=0, step=step, dynamic_size=True))
    assert converted.assert_parity().shape == (1 + 2 * step, 2, 3)
    assert step > 1 or converted.model.graph.node[-1].op_type == "Loop"  # no padding: it writes every index


def run_loop_while(condition, x, end, decrement=0):
    """Return the array of a loop that writes from index 0 on, while `condition(index, end, value)` holds."""

    def body(index, end, value, array):
        return index + 1, end - decrement if decrement else end, value * 2, array.write(index, value)

    return tf.while_loop(lambda *state: condition(*state[:3]), body, (0, end, x, make_array(end)))[-1].stack()


def test_loop_that_writes_every_index_needs_no_padding():
    converted = ConvertedFunction(lambda x: run_loop_while(lambda index, end, _: index < end, x, tf.shape(x)[0]), x=X)
    converted.assert_parity()
    assert converted.model.graph.node[-1].op_type == "Loop"


def test_loop_that_ends_by_its_values_leaves_zeros():
    condition = lambda index, end, value: (index < end) & (tf.reduce_max(value) < 20)  # noqa: E731
    converted = ConvertedFunction(lambda x: run_loop_while(condition, x, 5), x=X)
    assert not converted.assert_parity()[2:].any()
    assert converted.assert_parity(x=X / 10)[4].all()


def test_loop_with_a_decreasing_end_leaves_zeros():
    converted = ConvertedFunction(lambda x: run_loop_while(lambda index, end, _: index < end, x, 4, decrement=1), x=X)
    assert not converted.assert_parity()[2:].any()


@pytest.mark.slow
def test_nested_loops_write_their_own_arrays():
    def run_nested_loops(x, steps):
        array = tf.TensorArray(tf.float32, 4, element_shape=(5, None, 3))

        def body(index, array):
            inner = run_loop(x * (1.0 + tf.cast(index, tf.float32)), steps, write_value)
            return index + 1, array.write(3 - index, inner)

        return tf.while_loop(lambda index, *_: index < 4, body, (0, array))[-1].stack()

    assert convert(run_nested_loops).assert_parity().shape == (4, 5, 2, 3)


def write_doubled(array, index, x):
    array = array.write(index, x)
    return array.write(index + 1, array.read(index) * 2)


REFUSED_WRITES = [
    ("it reads a `TensorArray` that it writes. Write", lambda x: make_array(6, clear_after_read=False), write_doubled),
    (
        "it writes a `TensorArray` only under a condition, .+ or never. Write",
        lambda x: make_array(6),
        lambda array, index, x: tf.cond(index > 0, lambda: array.write(index, x), lambda: array),
    ),
]


@pytest.mark.parametrize(("reason", "make", "write"), REFUSED_WRITES)
def test_array_read_or_written_conditionally_is_refused(reason, make, write):
    def function(x, steps):
        body = lambda index, array: (index + 1, write(array, index, x))  # noqa: E731
        return tf.while_loop(lambda index, _: index < steps, body, (0, make(x)))[-1].stack()

    with pytest.raises(UnsupportedModelError, match=f"Op `(Stateless)?While` .+ has no mapping to ONNX: {reason}"):
        convert(function)


def concatenate_flat(*tensors):
    return tf.concat([tf.reshape(tf.cast(tensor, tf.float32), [-1]) for tensor in tensors], 0)


@pytest.mark.slow
def test_scans_of_nested_tensors_and_of_none_equal_keras():
    def scan(x):
        nested = ops.scan(lambda c, row: ((c[0] + row["k"], ~c[1]), {"a": c[0], "b": c[1]}), (x[0], True), {"k": x})
        without_inputs = ops.scan(lambda c, _: (c * 2 + 1, c), x[0], None, length=3)
        without_outputs = ops.scan(lambda c, row: (c + row, None), x[0], x)
        return concatenate_flat(*tf.nest.flatten(nested), *without_inputs, without_outputs[0])

    ConvertedFunction(scan, x=X).assert_parity()


def test_array_written_before_and_in_a_loop_keeps_all_elements():
    def write_before_and_in_loop(x):
        array = tf.TensorArray(tf.float32, 6, element_shape=(3,), clear_after_read=False).write(0, x[0])
        body = lambda i, array: (i + 1, array.write(i + 1, array.read(i) * 2))  # noqa: E731
        array = tf.while_loop(lambda i, _: i < 4, body, (0, array))[1]
        return concatenate_flat(array.stack(), array.gather([3, 0]), array.size())

    assert ConvertedFunction(write_before_and_in_loop, x=X).assert_parity()[12:15].tolist() == (X[0] * 16).tolist()
