"""Special values in an export: a wrong answer names value and operator, a written-down one is warned of."""

import keras
import numpy as np
import pytest
from golden import cases_of
from keras import layers, ops

from keras_attn_export import ParityError, export_model
from keras_attn_export._export import contents
from keras_attn_export._internals.keras_internals import mistaken_biases
from keras_attn_export._model.special_values import FINITE, NOT_FINITE


@pytest.fixture(scope="module")
def highest():
    x = keras.Input((5,), name="x")
    return keras.Model(x, ops.argmax(x, -1))


def test_what_is_written_down_is_warned_of_and_strict_refuses_it(highest, tmp_path):
    bundle = export_model(highest, tmp_path / "bundle")
    (warning,) = bundle.report.warnings
    assert warning.startswith("Where input `x` holds NaN, the file differs from Keras, in `ArgMax`")
    assert bundle.manifest["values"]["x"].startswith("normal floats; ties and zeros, infinity equal; NaN differs in")
    cases = {row.case for row in bundle.report.rows}
    assert FINITE in cases
    assert NOT_FINITE not in cases  # it does not travel, so that nobody replays it
    with pytest.raises(ParityError, match="`strict` asks for more: Where input `x` holds NaN"):
        export_model(highest, tmp_path / "strict", strict=True)


def test_what_keras_s_own_graph_gives_otherwise_is_not_said_to_be_equal(highest, tmp_path, monkeypatch):
    def judged(self, actual, saved, *options):
        return judge(self, actual, [*saved[:-1], {name: array + 1 for name, array in saved[-1].items()}], *options)

    judge = contents.Special.judged
    monkeypatch.setattr(contents.Special, "judged", judged)
    bundle = export_model(highest, tmp_path / "bundle")
    assert bundle.manifest["values"]["x"] == "normal floats; ties and zeros equal"
    assert not bundle.report.warnings


def test_a_wrong_answer_names_value_operator_and_layer(tmp_path, monkeypatch):
    """The file takes -1 for 0, as handlers of tf2onnx did that truncate."""

    def write_wrongly(traced, path):
        for node in traced.model.graph.node:
            if node.op_type == "Max":
                node.op_type = "Min"
        written(traced, path)

    written = contents.write
    monkeypatch.setattr(contents, "write", write_wrongly)
    x = keras.Input((2,), dtype="int32", name="x")
    model = keras.Model(x, layers.Maximum(name="floor")([x, ops.absolute(x)]))
    with pytest.raises(ParityError) as caught:
        export_model(model, tmp_path / "bundle", sample_inputs=np.zeros((3, 2), "int32"))
    said = str(caught.value)
    assert f"in case `{FINITE}`" in said
    assert "They do where `x` holds -1" in said
    assert "It begins in `Min` of layer `floor`." in said


@pytest.mark.parametrize(
    ("x", "y", "mistaken"),
    [((5, 5), (5, 1), True), ((5, 4), (5, 1), False), ((5, 5), (1, 5), False), ((2, 5, 5), (1, 5, 1), True)],
)
def test_a_summand_that_keras_takes_for_a_bias(x, y, mistaken):
    summand = np.arange(np.prod(y), dtype="float32").reshape(y)
    with mistaken_biases() as found:
        sums = ops.add(np.zeros(x, "float32"), summand)
    assert found == [mistaken]
    assert np.array_equal(sums, np.zeros(x) + summand) is not mistaken, "Keras has mended it"


def test_sizes_by_which_it_is_taken_so_are_no_case():
    x, y = keras.Input((3,), name="x"), keras.Input((1,), name="y")  # as many features as the base has rows
    found = cases_of(keras.Model([x, y], x + y))
    assert {name for name, why in found.refused.items() if "summand for a bias" in why} == {"base"}
    of_known_sizes = cases_of(keras.Model(z := keras.Input(batch_shape=(3, 3)), z + z[:, :1]))
    assert not of_known_sizes.refused  # a graph of it does the same
