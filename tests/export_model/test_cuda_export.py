"""`provider="cuda"` all the way, on the provider that is here: which forms are written, and where they must run."""

import json
from unittest.mock import patch

import keras
import numpy as np
import onnx
import providers
import pytest
from keras import layers

import keras_attn
from keras_attn_export import ProviderError, export_model, verify_bundle
from keras_attn_export._lowerings import lower
from keras_attn_export._standalone import verify
from keras_attn_export._tracing.nodes import all_nodes

BLOCKS = "all examples at once, in blocks of queries"


@pytest.fixture
def cuda_is_the_cpu(monkeypatch):
    if providers.chosen() == "cpu":
        monkeypatch.setitem(verify.PROVIDERS, "cuda", "CPUExecutionProvider")
        monkeypatch.setattr(verify, "CUDA_OPTIONS", {})


def model():
    """Additive, dot product with returned weights, heads with a causal mask; padding in the first two."""
    x = keras.Input((None, 8), name="x")
    lengths = keras.Input((), dtype="int32", name="lengths")
    found = keras_attn.AdditiveAttention(6, name="additive")(x, x, x, lengths)
    found, weights = keras_attn.DotProductAttention(name="dot")(found, x, x, lengths, return_attention_scores=True)
    heads = keras_attn.MultiHeadAttention(keras_attn.DotProductAttention(), num_heads=2, key_dim=8, name="heads")
    found = layers.Dense(3, name="dense")(heads(found, found, found, use_causal_mask=True))
    return keras.Model([x, lengths], {"found": found, "weights": weights})


@pytest.mark.parametrize(
    ("lowering", "forms"),
    [
        ("adaptive", ["adaptive"] * 3),
        pytest.param("portable", ["portable"] * 3, marks=pytest.mark.out_of_turn),
        pytest.param("fused", ["portable", "portable", "fused"], marks=pytest.mark.out_of_turn),
    ],
)
@pytest.mark.usefixtures("cuda_is_the_cpu")
def test_which_forms_are_written(lowering, forms, tmp_path):
    bundle = export_model(model(), tmp_path / "bundle", lowering=lowering, provider="cuda")
    assert bundle.report.provider == "cuda"
    assert [layer["lowering"] for layer in bundle.manifest["layers"]] == forms
    assert {layer["form"] == BLOCKS for layer in bundle.manifest["layers"]} == {lowering == "adaptive"}
    assert verify_bundle(bundle.path, provider="cuda").passed
    file = onnx.load(bundle.path / "model.onnx")
    nodes = [node for holder in (file.graph, *file.functions) for node in all_nodes(holder)]
    names = [node.name for node in nodes if "keras_attn/" in node.name]
    assert len(names) == len(set(names))
    assert {name.split("/")[1] for name in names} == {"additive", "dot", "heads"}


@pytest.mark.usefixtures("cuda_is_the_cpu")
@pytest.mark.out_of_turn
@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_converted_files(precision, tmp_path):
    bundle = export_model(model(), tmp_path / "bundle", precision=precision, provider="cuda")
    assert bundle.report.passed
    assert {layer["form"] for layer in bundle.manifest["layers"]} == {BLOCKS}


@pytest.fixture(scope="module")
def batched(tmp_path_factory):
    """The form for a GPU, proven without one."""
    lowered = lower._lowered
    with patch.object(lower, "_lowered", lambda *given: lowered(*given[:3], "cuda")):
        return export_model(model(), tmp_path_factory.mktemp("batched") / "bundle")


def test_numbers_of_the_form_for_a_gpu(batched):
    assert batched.report.provider == "cpu"
    assert {layer["form"] for layer in batched.manifest["layers"]} == {BLOCKS}
    x = np.random.default_rng(0).standard_normal((3, 40, 8)).astype("float32")
    outputs = batched.run({"x": x, "lengths": np.array([40, 0, 7])})
    assert np.all(outputs["weights"][1] == 0)
    assert np.all(outputs["weights"][2, :, 7:] == 0)


@pytest.mark.usefixtures("cuda_is_the_cpu")
def test_attention_that_is_placed_elsewhere_ends_the_proof(batched, monkeypatch):
    placed = json.loads

    def softmax_elsewhere(text, **options):
        content = placed(text, **options)
        for event in content if isinstance(content, list) else ():
            if "keras_attn/additive/" in event.get("name", "") and event["args"].get("op_name") == "Softmax":
                event["args"]["provider"] = "OtherExecutionProvider"
        return content

    monkeypatch.setattr(verify.json, "loads", softmax_elsewhere)
    with pytest.raises(
        ProviderError,
        match=r"^Attention did not run on (CPU|CUDA)\w+ alone: of layer `additive` Softmax_\d+.* on Other",
    ):
        verify_bundle(batched.path, provider="cuda")
