"""Limits of floats that depend on a tie: wide in the steps after the tie, narrow in all other steps."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from golden_case_helpers import measure_output_limits
from keras import layers

from keras_attn_export import export_model
from keras_attn_export._onnx.traversal import iter_nodes

STEPS = 4
NARROW_LIMIT = 1e-4


@keras.saving.register_keras_serializable("tests")
class GreedyLoop(layers.Layer):
    """Loop that halves its state and adds the row of a table that the argmax of the state selects.

    Without the halving, the states after both choices of a tie could become equal again."""

    def build(self, shape):
        self.table = self.add_weight(shape=(3, 3), name="table")

    def call(self, x):
        specs = ((tf.int32, [None]), (x.dtype, [None, 3]))
        arrays = [tf.TensorArray(dtype, STEPS, element_shape=shape) for dtype, shape in specs]

        def run_step(i, state, tokens, states):
            token = tf.argmax(state, -1, output_type=tf.int32)
            next_state = state / 2 + tf.gather(tf.convert_to_tensor(self.table), token)
            return i + 1, next_state, tokens.write(i, token), states.write(i, state)

        _, _, tokens, states = tf.while_loop(lambda i, *_: i < STEPS, run_step, (0, x, *arrays))
        return tf.transpose(tokens.stack()), tf.transpose(states.stack(), (1, 0, 2))


def build_greedy_model():
    x = keras.Input((3,), name="x")
    tokens, states = GreedyLoop(name="choosing")(x)
    model = keras.Model(x, {"tokens": tokens, "states": states})
    model.set_weights([np.array([[-0.37, 0.21, 0.11], [0.13, -0.41, 0.35], [0.29, 0.17, -0.51]], "float32")])
    return model


# Row 0 has a tie in step 0, row 1 has none, and row 2 has a tie in step 1: 0.25 - 0.37 and -0.33 + 0.21 are both -0.12.
TIES = np.array([[0.9, 0.9, 0.1], [0.9, 0.34, 0.5], [0.5, -0.66, -0.6]], "float32")


def test_limits_are_wide_after_a_tie_alone():
    ties, tokens = measure_output_limits(build_greedy_model(), {"x": TIES}, name="tokens")
    limits, _ = measure_output_limits(build_greedy_model(), {"x": TIES}, name="states")
    assert tokens[:, 0].tolist() == [0, 0, 0]
    assert ties[0, 0]
    assert not ties[1].any()
    assert ties[2].tolist()[:2] == [False, True]
    assert limits[0, 0].max() < NARROW_LIMIT  # the state from which the token is selected
    assert limits[0, 1:].max(-1).min() > 0.1
    assert limits[1].max() < NARROW_LIMIT
    assert limits[2, :2].max() < NARROW_LIMIT
    assert limits[2, 2:].max(-1).min() > 0.1


@pytest.mark.slow
def test_export_passes_with_either_choice_of_a_tie(monkeypatch, tmp_path):
    """The file selects the last of equal scores, Keras the first."""
    from keras_attn_export._export import float32_file

    save = float32_file.save_model

    def save_with_last_index(traced, path, **options):
        for node in iter_nodes(traced.model.graph):
            if node.op_type == "ArgMax":
                node.attribute.add(name="select_last_index", type=2, i=1)
        save(traced, path, **options)

    monkeypatch.setattr(float32_file, "save_model", save_with_last_index)
    # A perturbation gives two equal inputs the opposite order in one of four runs.
    monkeypatch.setattr("keras_attn_export._rounding.rounding_error.TIE_RUNS", 60)
    bundle = export_model(build_greedy_model(), tmp_path / "bundle", sample_inputs={"x": TIES})
    assert bundle.run({"x": TIES})["tokens"][:, 0].tolist() == [1, 0, 0]
    rows = {row.case: row for row in bundle.report.rows if row.name == "tokens"}
    assert rows["samples"].ties > 0
