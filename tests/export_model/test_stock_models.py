"""Models of Keras's own attention layers: exported and proven in a lowering."""

import keras
import onnx
import pytest

from keras_attn_export import export_model


def encoder():
    """Padding by id 0: keys are masked, and queries too."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(50, 8, mask_zero=True)(ids)
    x = keras.layers.MultiHeadAttention(2, 4, name="heads")(x, x)
    x = x + keras.layers.GroupQueryAttention(4, 4, 2, dropout=0.1, name="groups")(x, x, use_causal_mask=True)
    x = keras.layers.Attention(name="products")([x, x])
    return keras.Model(ids, keras.layers.AdditiveAttention(name="additive")([x, x]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:[\\s\\S]*destroy the mask:UserWarning")  # what Keras thinks of its own layer
@pytest.mark.parametrize("lowering", ["portable", "adaptive"])
def test_stock_attention_layers_are_lowered(lowering, tmp_path):
    bundle = export_model(encoder(), tmp_path / "bundle", lowering=lowering)
    assert bundle.report.passed
    classes = ("MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention")
    assert [(layer["class"], layer["lowering"]) for layer in bundle.manifest["layers"]] == [
        (each, lowering) for each in classes
    ]
    functions = onnx.load(bundle.path / "model.onnx").functions
    assert len(functions) == (4 if lowering == "adaptive" else 0)
