"""A form that no golden case ran is told of, and refused where all must be proven."""

import keras
import pytest
from export_models import qkvl
from keras import layers

from keras_attn import DotProductAttention
from keras_attn_export import ParityError, export_model
from keras_attn_export._model.long_cases import LONG
from keras_attn_export._thresholds import LARGE, From

UNSEEN = "No case is long enough for the form that layer `attend` takes for large sizes."


def shortened(by, attend):
    """A model that attends over fewer positions than its input has."""
    x = keras.Input((None, 4), name="x")
    y = layers.Conv1D(4, by, strides=by, padding="same")(x) if by > 1 else x
    return keras.Model(x, attend(y))


def ours(y):
    return DotProductAttention(name="attend")(y, y, y)


def keras_own(y):
    return layers.MultiHeadAttention(2, 2, name="attend")(y, y)


@pytest.mark.parametrize("attend", [ours, keras_own])
def test_a_form_that_no_case_reaches_is_told_of(attend, tmp_path):
    assert export_model(shortened(1, attend), tmp_path / "same").report.warnings == ()
    assert export_model(shortened(4, attend), tmp_path / "fewer").report.warnings == (UNSEEN,)
    with pytest.raises(ParityError, match="No case is long enough"):
        export_model(shortened(4, attend), tmp_path / "strict", strict=True)


def test_other_lowerings_decide_nothing(tmp_path):
    for lowering in ("portable", "ragged"):
        assert export_model(shortened(4, ours), tmp_path / lowering, lowering=lowering).report.warnings == ()


def test_a_form_that_is_never_taken_need_not_be_reached(tmp_path, monkeypatch):
    monkeypatch.setitem(LARGE, "flash", From(0, 2**62))
    assert export_model(shortened(4, ours), tmp_path / "bundle").report.warnings == ()


def test_queries_and_keys_are_counted_each_for_itself(tmp_path, monkeypatch):
    monkeypatch.setitem(LARGE, "examples", From(0, 400))
    q, k, v, lens = qkvl(queries=6, keys=6)
    few = q[:, ::16]
    few_queries = keras.Model([q, k, v, lens], DotProductAttention(name="attend")(few, k, v, lens))
    assert UNSEEN in export_model(few_queries, tmp_path / "few").report.warnings
    all_queries = keras.Model([q, k, v, lens], DotProductAttention(name="attend")(q, k, v, lens))
    assert export_model(all_queries, tmp_path / "all").report.warnings == ()


def test_few_queries_that_the_model_fixes_are_no_question_of_size(tmp_path):
    q, k = keras.Input((1, 4), name="q"), keras.Input((None, 4), name="k")
    bundle = export_model(keras.Model([q, k], layers.MultiHeadAttention(2, 2)(q, k)), tmp_path / "bundle", strict=True)
    assert bundle.manifest["layers"][0]["form"].endswith("by the sizes that the model fixes")


class Placed(layers.Layer):
    """Adds what stands in a table of nine places."""

    def build(self, shape):
        self.table = self.add_weight(shape=(9, shape[-1]), initializer="normal")

    def call(self, x):
        return x + keras.ops.take(self.table, keras.ops.arange(keras.ops.shape(x)[1]), axis=0)


def test_a_model_that_takes_no_more_positions(tmp_path):
    """No request can be longer than what Keras takes, so that nothing is left open."""
    x = keras.Input((None, 4), name="x")
    report = export_model(keras.Model(x, ours(Placed()(x))), tmp_path / "bundle").report
    assert LONG in report.refused
    assert UNSEEN not in report.warnings


def test_a_layer_that_is_never_called(tmp_path):
    class Holding(layers.Layer):
        def __init__(self):
            super().__init__()
            self.unused = layers.AdditiveAttention()

        def build(self, shape):
            pass

        def call(self, x):
            return x * 2

    x = keras.Input((None, 4), name="x")
    assert export_model(keras.Model(x, Holding()(x)), tmp_path / "bundle").report.passed
