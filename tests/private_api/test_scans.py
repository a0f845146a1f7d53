"""Refusal of scans along an axis of unknown size, for which Keras would trace deeply nested branches."""

import pytest
import tensorflow as tf
from keras import ops

from keras_attn_export._private_api.keras_internals import refuse_dynamic_scans


@pytest.mark.parametrize("axis", [1, -2])
def test_scan_along_an_axis_of_unknown_size_is_refused(axis):
    scan = tf.function(lambda x: ops.associative_scan(ops.add, x, axis=axis), autograph=False)
    with refuse_dynamic_scans():
        with pytest.raises(ValueError, match=f"needs a static size for axis {axis}"):
            scan.get_concrete_function(tf.TensorSpec([None, None, 3]))
        scan.get_concrete_function(tf.TensorSpec([None, 4, 3]))
