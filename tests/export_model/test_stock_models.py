"""Models of Keras's own attention layers: exported and proven in a lowering, with nothing of Keras changed after."""

import keras
import numpy as np
import onnx
import pytest
from unproven import Unproven

from keras_attn_export import ExportError, export_model


def methods():
    owners = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention, keras.layers.Attention)
    return [dict(vars(owner)) for owner in owners]


@pytest.fixture(autouse=True)
def _unchanged():
    before = methods()
    yield
    assert methods() == before


def encoder():
    """Padding by id 0: keys are masked, and queries too."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(50, 8, mask_zero=True)(ids)
    x = keras.layers.MultiHeadAttention(2, 4, name="heads")(x, x)
    x = x + keras.layers.GroupQueryAttention(4, 4, 2, dropout=0.1, name="groups")(x, x, use_causal_mask=True)
    x = keras.layers.Attention(name="products")([x, x])
    return keras.Model(ids, keras.layers.AdditiveAttention(name="additive")([x, x]))


@pytest.mark.filterwarnings("ignore:[\\s\\S]*destroy the mask:UserWarning")  # what Keras thinks of its own layer
@pytest.mark.parametrize("lowering", [pytest.param("portable", marks=pytest.mark.out_of_turn), "adaptive"])
def test_exported(lowering, tmp_path):
    bundle = export_model(encoder(), tmp_path / "bundle", lowering=lowering)
    assert bundle.report.passed
    classes = ("MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention")
    assert [(layer["class"], layer["lowering"]) for layer in bundle.manifest["layers"]] == [
        (each, lowering) for each in classes
    ]
    functions = onnx.load(bundle.path / "model.onnx").functions
    assert len(functions) == (4 if lowering == "adaptive" else 0)


@keras.saving.register_keras_serializable("tests")
class Halved(keras.layers.MultiHeadAttention):
    """Computes what its base does not."""

    def _compute_attention(self, *args, **kwargs):
        output, weights = super()._compute_attention(*args, **kwargs)
        return output / 2, weights


@pytest.mark.smoke
def test_a_derived_class_stays_as_it_is(tmp_path):
    x = keras.Input((None, 6), name="x")
    y = Halved(2, 3, name="derived")(x, x, use_causal_mask=True)
    model = keras.Model(x, keras.layers.MultiHeadAttention(2, 3, name="stock")(y, y))
    traced = Unproven(model)
    file, inputs = traced.written(tmp_path, "fused"), {"x": np.random.default_rng(0).normal(size=(2, 5, 6)).astype("f")}
    assert file.lowerings == {"stock": "fused"}
    np.testing.assert_allclose(*(each.popitem()[1] for each in (file.run(inputs), traced.expected(inputs))), atol=1e-5)


def test_a_failing_export(tmp_path):
    x = keras.Input((4, 4), name="x")
    attended = keras.layers.MultiHeadAttention(2, 3)(x, x)
    model = keras.Model(x, keras.ops.nextafter(attended, 1.0))
    with pytest.raises(ExportError, match="`NextAfter`"):
        export_model(model, tmp_path / "bundle")
