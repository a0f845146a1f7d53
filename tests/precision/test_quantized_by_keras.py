"""Models that Keras itself has quantized, or given low-rank updates: they export and match, or are refused by name."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attn import AdditiveAttention
from keras_attn_export import UnsupportedModelError, export_model


def sequences():
    """Every layer of Keras that `quantize` knows and that has weights, and attention of ours."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(20, 16, name="embed")(ids)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(None, 24), name="einsum")(x)
    x = AdditiveAttention(16, name="attend")(x, x, x)
    return keras.Model(ids, layers.Dense(8, name="dense")(x))


def wide():
    """A kernel of more rows than one block of int4 has: which block a row is in is a weight of floats."""
    keras.utils.set_random_seed(0)
    x = keras.Input((200,), name="x")
    return keras.Model(x, layers.Dense(8, name="dense")(x))


def with_low_rank(model):
    rng = np.random.default_rng(0)
    for layer in model._flatten_layers():
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(2)
            for weight in (layer.lora_kernel_a, layer.lora_kernel_b) if hasattr(layer, "lora_kernel_a") else ():
                weight.assign(rng.normal(size=weight.shape))
    return model


def quantized(model, mode):
    model.quantize(mode)
    return model


def by_activations(mode):
    """A dense layer whose int4 follows what goes through it, as `Model.quantize` does with a text for each layer."""
    from keras.src.quantizers.awq import AWQ
    from keras.src.quantizers.gptq import GPTQ

    model = wide()
    dense = model.get_layer("dense")
    kind = keras.quantizers.GPTQConfig if mode == "gptq" else keras.quantizers.AWQConfig
    config = kind(dataset=["a text"], tokenizer=list, weight_bits=4, group_size=32)
    dense.quantize(mode, config=config)
    rows = keras.ops.convert_to_tensor(np.random.default_rng(0).normal(size=(64, 200)).astype("float32"))
    if mode == "gptq":
        (found := GPTQ(dense, config)).update_hessian_with_batch(rows)
        found.quantize_and_correct_layer()
    else:
        (found := AWQ(dense, config)).update_activation_magnitudes(rows)
        found.quantize_layer()
    return model


MODELS = {
    "int8": lambda: quantized(sequences(), "int8"),
    "int4": lambda: quantized(sequences(), "int4"),
    "int4 in blocks": lambda: quantized(wide(), "int4"),
    "LoRA": lambda: with_low_rank(sequences()),
    "LoRA on int8": lambda: quantized(with_low_rank(sequences()), "int8"),
    "gptq": lambda: by_activations("gptq"),
    "awq": lambda: by_activations("awq"),
}


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("made", MODELS.values(), ids=MODELS)
def test_what_keras_made_of_a_model_is_exported_and_matches(made, tmp_path):
    model = made()
    bundle = export_model(model, tmp_path / "bundle")
    (spec,) = bundle.manifest["inputs"]
    rng = np.random.default_rng(1)
    x = rng.integers(0, 20, (3, 7)).astype("int32") if spec["dtype"] == "int32" else rng.normal(size=(3, 200))
    x = x.astype(spec["dtype"])
    expected = model.predict(x, verbose=0)
    got = next(iter(bundle.run({spec["name"]: x}).values()))
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_float8_is_refused_by_name(tmp_path):
    model = quantized(wide(), "float8")
    with pytest.raises(UnsupportedModelError, match=r"Layer `dense` \(Dense\) is quantized to float8"):
        export_model(model, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())
