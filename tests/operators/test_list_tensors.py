"""A `TensorArray` in ONNX where no loop makes it: it is a tensor of its elements."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from traced_functions import Converted

X = np.arange(12, dtype="float32").reshape(4, 3)


def in_a_line(*tensors):
    return tf.concat([tf.reshape(tf.cast(each, tf.float32), [-1]) for each in tensors], 0)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_goes_on_with_what_it_carries(reverse):
    def scanned(x):
        last, all_ = ops.scan(lambda total, row: (total + row, total * row), x[0] * 0, x, reverse=reverse)
        return in_a_line(last, all_)

    converted = Converted(scanned, x=X)
    for steps in (4, 1):
        converted.assert_same(x=X[:steps])


@pytest.mark.slow
def test_scans_of_several_tensors_of_nothing_and_of_booleans():
    def scanned(x):
        both = ops.scan(lambda c, row: ((c[0] + row["k"], ~c[1]), {"a": c[0], "b": c[1]}), (x[0], True), {"k": x})
        alone = ops.scan(lambda c, _: (c * 2 + 1, c), x[0], None, length=3)
        silent = ops.scan(lambda c, row: (c + row, None), x[0], x)
        return in_a_line(*tf.nest.flatten(both), *alone, silent[0])

    Converted(scanned, x=X).assert_same()


def test_an_array_outside_of_loops():
    def written(x):
        read = tf.TensorArray(tf.float32, 4, clear_after_read=False).unstack(x)
        made = tf.TensorArray(tf.float32, 3)
        for place in (2, 0, 1):
            made = made.write(place, x[place] * 2)
        return in_a_line(read.read(2), read.stack(), read.gather([3, 0]), read.concat(), read.size(), made.stack())

    Converted(written, x=X).assert_same()


def test_a_loop_writes_into_an_array_that_was_written_before():
    def written(x):
        made = tf.TensorArray(tf.float32, 6, element_shape=(3,), clear_after_read=False).write(0, x[0])
        go_on = lambda i, made: (i + 1, made.write(i + 1, made.read(i) * 2))  # noqa: E731
        return tf.while_loop(lambda i, _: i < 4, go_on, (0, made))[1].stack()

    assert Converted(written, x=X).assert_same()[4].tolist() == (X[0] * 16).tolist()
