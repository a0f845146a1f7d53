"""Exports with `provider="cuda"`: the forms in the file, checks of the large forms, and the provider of each node."""

import json

import keras
import onnx
import provider_option
import pytest
from all_attention_models import build_three_layers
from text_models import build_text_model

import keras_attn
from keras_attn_export import ParityError, ProviderError, UnsupportedModelError, export_model, verify_bundle
from keras_attn_export._format import session
from keras_attn_export._format.providers import PROVIDERS
from keras_attn_export._lowerings.forms import multi_head_attention_op
from keras_attn_export._onnx.traversal import iter_nodes

WHOLE_BATCH = "the whole batch, in a form chosen by sizes"


@pytest.fixture
def cuda_runs_on_the_cpu(monkeypatch):
    """The CPU in place of CUDA, unless the tests run on CUDA (`--provider`)."""
    if provider_option.get_chosen_provider() == "cpu":
        cpu_provider = PROVIDERS["cuda"]._replace(name="CPUExecutionProvider", options={})
        monkeypatch.setitem(PROVIDERS, "cuda", cpu_provider)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lowering", "precision", "forms"),
    [
        ("adaptive", "float32", ["adaptive"] * 3),
        ("portable", "float32", ["portable"] * 3),
        ("fused", "float32", ["portable", "portable", "fused"]),
        ("adaptive", "int8", ["adaptive"] * 3),
    ],
)
@pytest.mark.usefixtures("cuda_runs_on_the_cpu")
def test_cuda_export_writes_the_forms_of_the_lowering(lowering, precision, forms, tmp_path):
    bundle = export_model(
        build_three_layers(), tmp_path / "bundle", lowering=lowering, precision=precision, provider="cuda"
    )
    assert bundle.report.passed
    assert bundle.report.provider == "cuda"
    assert [layer["lowering"] for layer in bundle.manifest["layers"]] == forms
    assert {layer["form"] == WHOLE_BATCH for layer in bundle.manifest["layers"]} == {lowering == "adaptive"}
    assert verify_bundle(bundle.path, provider="cuda").passed
    file = onnx.load(bundle.path / "model.onnx")
    nodes = [node for graph in (file.graph, *file.functions) for node in iter_nodes(graph)]
    names = [node.name for node in nodes if "keras_attn/" in node.name]
    assert len(names) == len(set(names))
    assert {name.split("/")[1] for name in names} == {"additive", "dot", "heads"}


@pytest.mark.slow
@pytest.mark.usefixtures("cuda_runs_on_the_cpu")
def test_form_for_large_sizes_is_checked_at_all_sizes(tmp_path, monkeypatch):
    attend_all = multi_head_attention_op.attend_all_keys  # ignores the causal mask
    monkeypatch.setattr(multi_head_attention_op, "attend_all_keys", lambda call, **_: attend_all(call))
    x = keras.Input((None, 8))
    causal = keras.Model(x, keras_attn.DotProductAttention()(x, x, x, use_causal_mask=True))
    with pytest.raises(ParityError, match=r"^In the forms of attention for large sizes: Outputs differ"):
        export_model(causal, tmp_path / "bundle", provider="cuda")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("cuda_runs_on_the_cpu")
def test_attention_on_another_provider_fails_verification(tmp_path, monkeypatch):
    bundle = export_model(build_three_layers(), tmp_path / "bundle", provider="cuda")
    load_json = json.loads

    def move_softmax(text, **options):
        content = load_json(text, **options)
        for event in content if isinstance(content, list) else ():
            if "keras_attn/additive/" in event.get("name", "") and event["args"].get("op_name") == "Softmax":
                event["args"]["provider"] = "OtherExecutionProvider"
        return content

    monkeypatch.setattr(session.json, "loads", move_softmax)
    message = r"^Attention did not run on (CPU|CUDA)\w+ alone: of layer `additive` Softmax_\d+.* on Other"
    with pytest.raises(ProviderError, match=message):
        verify_bundle(bundle.path, provider="cuda")


@pytest.mark.slow
@pytest.mark.usefixtures("cuda_runs_on_the_cpu")
def test_cuda_export_refuses_texts(tmp_path):
    with pytest.raises(UnsupportedModelError, match="cannot load with CUDA"):
        export_model(build_text_model(), tmp_path / "bundle", provider="cuda")
