"""`TimeDistributed` over a dynamic number of steps: one batch of all steps in place of a loop."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops

from keras_attn_export import ParityError, export_model
from keras_attn_export._tracing.time_distributed import merge_steps_into_batch


def build_time_distributed_model(*sizes, layer):
    x = keras.Input((None, *sizes), name="x")
    return keras.Model(x, {"y": layers.TimeDistributed(layer, name="distributed")(x)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "layer"),
    [
        ((6, 6, 2), lambda: layers.Conv2D(3, 3, strides=2, activation="relu", bias_initializer="normal")),
        ((None, 4), lambda: layers.Conv1D(5, 3, padding="same")),
        pytest.param((7, 3), lambda: layers.LSTM(4), marks=pytest.mark.slow),
    ],
)
def test_time_distributed_layers_are_exported_without_a_loop(sizes, layer, tmp_path):
    model = build_time_distributed_model(*sizes, layer=layer())
    bundle = export_model(model, tmp_path / "bundle")
    shape = bundle.manifest["inputs"][0]["shape"]
    assert shape[:2] == ["batch", "x_length"]
    assert not {"Loop", "Scan"} & {node.op_type for node in onnx.load(bundle.path / "model.onnx").graph.node}
    x = np.random.default_rng(0).standard_normal((2, 5, *(size or 8 for size in sizes))).astype("float32")
    np.testing.assert_allclose(bundle.run({"x": x})["y"], model(x)["y"], rtol=1e-5, atol=1e-6)


def test_batched_steps_use_their_masks_and_layers_stay_unchanged():
    x = keras.Input((None, 5, 3), name="x")
    masked_steps = layers.TimeDistributed(layers.Masking())(x)
    model = keras.Model(
        x, layers.TimeDistributed(layers.GlobalAveragePooling1D())(masked_steps, mask=ops.any(x != 0, -1))
    )
    batch = np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype("float32")
    batch[0, 1, 3:] = 0
    expected = model(batch)
    distributed_layers = [layer for layer in model.layers if isinstance(layer, layers.TimeDistributed)]
    with merge_steps_into_batch(distributed_layers):
        assert all("call" in vars(layer) for layer in distributed_layers)
        np.testing.assert_allclose(model(batch), expected, rtol=1e-6)
    assert not any("call" in vars(layer) for layer in distributed_layers)


@pytest.mark.slow
def test_time_distributed_layer_that_mixes_its_batch_fails_parity(tmp_path):
    model = build_time_distributed_model(4, layer=layers.Lambda(lambda x: x - x[:1], output_shape=(4,)))
    with pytest.raises(ParityError):
        export_model(model, tmp_path / "bundle")
