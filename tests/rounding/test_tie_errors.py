"""Floats that hang on a choice which rounding makes may be what either way gives; all others stay as narrow as ever."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from golden_case_helpers import measure_output_limits
from keras import layers

from keras_attn_export import export_model
from keras_attn_export._onnx.traversal import iter_nodes

STEPS = 4


@keras.saving.register_keras_serializable("tests")
class Choosing(layers.Layer):
    """A loop that adds a row of a table to its state by the largest of three scores, of which two may be equal.

    It halves the state before, so that one way does not come to where the other does."""

    def build(self, shape):
        self.table = self.add_weight(shape=(3, 3), name="table")

    def call(self, x):
        made = [
            tf.TensorArray(kind, STEPS, element_shape=shape)
            for kind, shape in ((tf.int32, [None]), (x.dtype, [None, 3]))
        ]

        def body(i, state, tokens, states):
            token = tf.argmax(state, -1, output_type=tf.int32)
            following = state / 2 + tf.gather(tf.convert_to_tensor(self.table), token)
            return i + 1, following, tokens.write(i, token), states.write(i, state)

        found = tf.while_loop(lambda i, *_: i < STEPS, body, (0, x, *made))
        return tf.transpose(found[2].stack()), tf.transpose(found[3].stack(), (1, 0, 2))


def choosing():
    x = keras.Input((3,), name="x")
    tokens, states = Choosing(name="choosing")(x)
    model = keras.Model(x, {"tokens": tokens, "states": states})
    model.set_weights([np.array([[-0.37, 0.21, 0.11], [0.13, -0.41, 0.35], [0.29, 0.17, -0.51]], "float32")])
    return model


# the first row ties at once, the second never, the third in its second step: 0.25 - 0.37 is -0.12, as is -0.33 + 0.21
TIES = np.array([[0.9, 0.9, 0.1], [0.9, 0.34, 0.5], [0.5, -0.66, -0.6]], "float32")


def test_limits_are_wide_after_a_tie_alone():
    (tied, tokens), (limits, _) = (
        measure_output_limits(choosing(), {"x": TIES}, name=name) for name in ("tokens", "states")
    )
    assert tokens[:, 0].tolist() == [0, 0, 0]
    assert tied[0, 0]
    assert not tied[1].any()
    assert tied[2].tolist()[:2] == [False, True]
    narrow = 1e-4
    assert limits[0, 0].max() < narrow  # the state that the choice is made of
    assert limits[0, 1:].max(-1).min() > 0.1
    assert limits[1].max() < narrow
    assert limits[2, :2].max() < narrow
    assert limits[2, 2:].max(-1).min() > 0.1


@pytest.mark.slow
def test_export_passes_with_either_choice_of_a_tie(monkeypatch, tmp_path):
    """A file in which equal scores give the last of them, where Keras takes the first."""
    from keras_attn_export._export import float32_file

    write = float32_file.save_model

    def taking_the_last(finished, path, **options):
        for node in iter_nodes(finished.model.graph):
            if node.op_type == "ArgMax":
                node.attribute.add(name="select_last_index", type=2, i=1)
        write(finished, path, **options)

    monkeypatch.setattr(float32_file, "write", taking_the_last)
    monkeypatch.setattr(
        "keras_attn_export._rounding.rounding_error.TIE_RUNS", 60
    )  # one in four runs parts two equal inputs
    bundle = export_model(choosing(), tmp_path / "bundle", sample_inputs={"x": TIES})
    assert bundle.run({"x": TIES})["tokens"][:, 0].tolist() == [1, 0, 0]
    rows = {row.case: row for row in bundle.report.rows if row.name == "tokens"}
    assert rows["samples"].ties > 0
