"""Complex tensors in ONNX: whatever moves, adds or multiplies their numbers, between what makes and what reads them."""

import numpy as np
import pytest
import tensorflow as tf
from traced_functions import Converted

A, B = np.random.default_rng(0).standard_normal((2, 2, 3, 4)).astype("float32")
FACTOR = tf.constant(2 + 3j, tf.complex64)
FORMS = (
    lambda z: tf.transpose(z, [0, 2, 1]),
    lambda z: tf.expand_dims(z, 1)[..., None],
    lambda z: tf.reshape(z, [-1, tf.shape(z)[2]]),
    lambda z: z[:, 1:, ::-2],
    lambda z: tf.concat([z, z], -1),
    lambda z: tf.stack(tf.unstack(z, 3, 1), 2),
    lambda z: tf.gather(z, [2, 0], axis=1),
    lambda z: tf.pad(z, [[0, 0], [1, 0], [0, 2]]),
    lambda z: tf.reduce_sum(z, 1) - tf.reduce_mean(z, 1),
    lambda z: z * FACTOR + tf.math.conj(z),
    lambda z: z / FACTOR + 1.0 / (z + 3.0),
    lambda z: tf.matmul(z, z, adjoint_b=True),
    lambda z: tf.matmul(tf.linalg.adjoint(z), z),
    lambda z: tf.einsum("bij,bkj->bik", z, z),
    lambda z: tf.exp(z) + tf.math.log(z) + tf.square(z),
    lambda z: tf.where(tf.math.real(z) > 0, z, -z),
    lambda z: tf.cast(tf.abs(z), tf.complex64) * tf.complex(tf.cast(z, tf.float32), 1.0),
    lambda z: tf.complex(tf.math.angle(z), tf.reshape(tf.math.imag(z), tf.shape(z))),
)


def in_a_line(tensors):
    return tf.concat([tf.reshape(part, [-1]) for z in tensors for part in (tf.math.real(z), tf.math.imag(z))], 0)


@pytest.mark.slow
def test_operations_between_complex_tensors_equal_tensorflow():
    converted = Converted(lambda a, b: in_a_line(form(tf.complex(a, b)) for form in FORMS), a=A, b=B)
    converted.assert_same()
    converted.assert_same(a=B[:1], b=A[:1])


def test_magnitudes_neither_overflow_nor_underflow():
    converted = Converted(lambda a, b: tf.abs(tf.complex(a, b)), a=A, b=B)
    assert np.isfinite(converted.assert_same(a=A * 1e30, b=B * 1e30)).all()
    assert converted.assert_same(a=A * 1e-25, b=B * 1e-25).all()
