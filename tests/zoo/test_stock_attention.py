"""Attention layers within models of keras_hub are lowered as ours are."""

import importlib.util

import pytest

from keras_attn_export import export_model

from . import ZOO

KINDS = {"bert": "MultiHeadAttention", "gpt2": "CachedMultiHeadAttention"}


@pytest.mark.zoo
@pytest.mark.parametrize("name", KINDS)
def test_layers_of_keras_hub(name, tmp_path):
    if not importlib.util.find_spec("keras_hub"):
        pytest.skip("keras_hub is not installed; scripts/zoo-setup does, which .ci/run calls")
    model, samples = ZOO[name].model(), ZOO[name].sample_inputs()
    bundle = export_model(model, tmp_path / "bundle", sample_inputs=samples, lowering="ragged")
    assert bundle.report.passed
    layers = bundle.manifest["layers"]
    assert {layer["lowering"] for layer in layers} == {"ragged"}
    assert KINDS[name] in {layer["class"] for layer in layers}
    assert len(layers) == 2
