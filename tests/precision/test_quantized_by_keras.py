"""Models with quantized weights or low-rank updates of Keras: exported with equal outputs, or refused by name."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attn import AdditiveAttention
from keras_attn_export import UnsupportedModelError, export_model


def build_sequence_model():
    """Return a model of all Keras layers with weights that `quantize` supports, and attention of this package."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(20, 16, name="embed")(ids)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(None, 24), name="einsum")(x)
    x = AdditiveAttention(16, name="attend")(x, x, x)
    return keras.Model(ids, layers.Dense(8, name="dense")(x))


def build_wide_model():
    """Return a model whose kernel has several blocks of int4; a float weight stores the block index of each row."""
    keras.utils.set_random_seed(0)
    x = keras.Input((200,), name="x")
    return keras.Model(x, layers.Dense(8, name="dense")(x))


def build_tied_model():
    """Return a model that reads words and scores words with one matrix."""
    keras.utils.set_random_seed(0)
    ids, embed = keras.Input((None,), dtype="int32", name="ids"), layers.ReversibleEmbedding(20, 16)
    return keras.Model(ids, embed(layers.Dense(16, activation="tanh")(embed(ids)), reverse=True))


def enable_low_rank(model):
    """Return the model with random low-rank updates (LoRA)."""
    rng = np.random.default_rng(0)
    for layer in model._flatten_layers():
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(2)
            for weight in (layer.lora_kernel_a, layer.lora_kernel_b) if hasattr(layer, "lora_kernel_a") else ():
                weight.assign(rng.normal(size=weight.shape))
    return model


def quantize(model, mode):
    model.quantize(mode)
    return model


def build_calibrated_model(mode):
    """Return a model whose dense layer is quantized to int4 with calibration rows, as `Model.quantize` does."""
    from keras.src.quantizers.awq import AWQ
    from keras.src.quantizers.gptq import GPTQ

    model = build_wide_model()
    dense = model.get_layer("dense")
    config_type = keras.quantizers.GPTQConfig if mode == "gptq" else keras.quantizers.AWQConfig
    config = config_type(dataset=["a text"], tokenizer=list, weight_bits=4, group_size=32)
    dense.quantize(mode, config=config)
    rows = keras.ops.convert_to_tensor(np.random.default_rng(0).normal(size=(64, 200)).astype("float32"))
    if mode == "gptq":
        (quantizer := GPTQ(dense, config)).update_hessian_with_batch(rows)
        quantizer.quantize_and_correct_layer()
    else:
        (quantizer := AWQ(dense, config)).update_activation_magnitudes(rows)
        quantizer.quantize_layer()
    return model


MODELS = {
    "int8": lambda: quantize(build_sequence_model(), "int8"),
    "int4": lambda: quantize(build_sequence_model(), "int4"),
    "int4 in blocks": lambda: quantize(build_wide_model(), "int4"),
    "LoRA": lambda: enable_low_rank(build_sequence_model()),
    "LoRA on int8": lambda: quantize(enable_low_rank(build_sequence_model()), "int8"),
    "LoRA on int4, tied": lambda: quantize(enable_low_rank(build_tied_model()), "int4"),
    "gptq": lambda: build_calibrated_model("gptq"),
    "awq": lambda: build_calibrated_model("awq"),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("build_model", MODELS.values(), ids=MODELS)
def test_model_quantized_by_keras_is_exported_with_equal_outputs(build_model, tmp_path):
    model = build_model()
    bundle = export_model(model, tmp_path / "bundle")
    (spec,) = bundle.manifest["inputs"]
    rng = np.random.default_rng(1)
    x = rng.integers(0, 20, (3, 7)).astype("int32") if spec["dtype"] == "int32" else rng.normal(size=(3, 200))
    x = x.astype(spec["dtype"])
    expected = model.predict(x, verbose=0)
    actual = next(iter(bundle.run({spec["name"]: x}).values()))
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


SMALL = {"vocabulary_size": 20, "num_layers": 1, "hidden_dim": 16, "intermediate_dim": 32}
HEADS = SMALL | {"num_heads": 2, "max_sequence_length": 64}
GROUPS = SMALL | {"num_query_heads": 4, "num_key_value_heads": 2}
BACKBONES = {"Llama": GROUPS, "Mistral": GROUPS, "Gemma": GROUPS | {"head_dim": 8}, "GPT2": HEADS, "Bert": HEADS}


@pytest.mark.slow
@pytest.mark.needs("keras_hub")
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("name", BACKBONES)
def test_quantized_backbone_is_exported_after_saving(name, mode, tmp_path):
    from keras_hub import models

    dtype = "mixed_bfloat16" if name == "Llama" else "float32"
    model = getattr(models, f"{name}Backbone")(**BACKBONES[name], dtype=dtype)
    if dtype != "float32":
        model.enable_lora(2)
    model.quantize(mode)
    model.save(tmp_path / "model.keras")  # saving deletes the names of dtype policies
    bundle = export_model(model, tmp_path / "bundle")
    rng = np.random.default_rng(1)
    arrays = {key: rng.integers(1, 2 if key == "padding_mask" else 20, (3, 7)).astype("int32") for key in model.input}
    arrays |= {"segment_ids": arrays["padding_mask"]} if "segment_ids" in arrays else {}
    expected = keras.tree.flatten(keras.tree.map_structure(np.float32, model.predict(arrays, verbose=0)))
    limit = 1e-3 if dtype == "float32" else 0.1  # bfloat16 has 8 significant bits
    for output, array in zip(bundle.run(arrays).values(), expected, strict=True):
        np.testing.assert_allclose(output, array, rtol=limit, atol=limit * np.abs(array).max())


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_float8_is_refused_by_name(tmp_path):
    model = quantize(build_wide_model(), "float8")
    with pytest.raises(UnsupportedModelError, match=r"Layer `dense` \(Dense\) is quantized to float8"):
        export_model(model, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())
