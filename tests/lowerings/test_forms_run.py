"""A form that no golden case ran is told of, and refused where all must be proven."""

import keras
import pytest
from export_models import qkvl
from keras import layers

from keras_attn import DotProductAttention
from keras_attn_export import ParityError, export_model
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
    last = keras.ops.take(q, [-1], axis=1)
    one_query = keras.Model([q, k, v, lens], DotProductAttention(name="attend")(last, k, v, lens))
    assert UNSEEN in export_model(one_query, tmp_path / "one").report.warnings
    all_queries = keras.Model([q, k, v, lens], DotProductAttention(name="attend")(q, k, v, lens))
    assert export_model(all_queries, tmp_path / "all").report.warnings == ()
