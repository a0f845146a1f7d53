"""`lowering="auto"` keeps the fastest form that gives the right numbers, and says what it measured."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from export_models import additive, dict_inputs_and_outputs, shared_layer

from keras_attn_export import ExportError, export_model
from keras_attn_export._cli.main import main
from keras_attn_export._lowerings import fastest, fused
from keras_attn_export._model.golden_cases import Cases
from keras_attn_export._standalone.verify import Case


@pytest.fixture
def speeds(monkeypatch):
    """Times as given here, in place of measured ones; what was there to be timed, by lowering."""
    table = {"portable": 3.0, "fused": 2.0, "ragged": 1.0}
    seen = []

    def times(sessions, arrays):
        seen.append((set(sessions), {name: array.shape for name, array in arrays.items()}))
        return {name: table[name] for name in sessions}

    monkeypatch.setattr(fastest, "_times", times)
    return table, seen


def layers(bundle):
    return bundle.manifest["layers"]


def functions(bundle):
    return {function.name for function in onnx.load(bundle.path / "model.onnx").functions}


@pytest.mark.parametrize("fastest", ["portable", "fused", "ragged"])
def test_the_fastest_is_kept(fastest, speeds, tmp_path):
    speeds[0][fastest] = 0.5
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    (layer,) = layers(bundle)
    assert layer["lowering"] == fastest
    assert layer["milliseconds"] == [speeds[0]]
    assert functions(bundle) == (set() if fastest == "portable" else {"dot_product_0"})
    assert bundle.manifest["opset"] == (24 if fastest == "fused" else 18)
    assert bundle.report.passed


def test_plain_primitives_stay_unless_another_is_clearly_faster(speeds, tmp_path):
    speeds[0].update(portable=1.0, ragged=0.99, fused=1.5)
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    assert layers(bundle)[0]["lowering"] == "portable"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("scale = ", "scale = 1"), ("kv_num_heads = 1", "kv_num_heads = 3")],
    ids=["gives other numbers", "does not load"],
)
def test_one_that_is_wrong_is_not_kept_however_fast(right, wrong, speeds, tmp_path, monkeypatch):
    body = fused.body
    monkeypatch.setattr(fused, "body", lambda call: body(call).replace(right, wrong))
    speeds[0]["fused"] = 0.1
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    assert layers(bundle)[0]["lowering"] == "ragged"
    assert "fused" not in layers(bundle)[0]["milliseconds"][0]


def test_what_does_not_match_in_the_end_is_written_plainly(speeds, tmp_path, monkeypatch):
    right = fused.body
    monkeypatch.setattr(fused, "body", lambda call: right(call).replace("scale = ", "scale = 1"))
    monkeypatch.setattr(fastest, "_agree", lambda *_: True)
    speeds[0]["fused"] = 0.1
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    assert layers(bundle)[0]["lowering"] == "portable"
    assert bundle.report.passed


def test_the_tolerance_that_was_asked_for_decides(speeds, tmp_path):
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto", tolerance=(4e-7, 4e-7))
    assert bundle.report.passed


def test_an_opset_that_was_asked_for_is_kept(speeds, tmp_path):
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto", opset=20)
    assert bundle.manifest["opset"] == 20
    assert speeds[1][0][0] == {"portable", "ragged"}


def test_an_onnxruntime_too_old_for_fused(speeds, tmp_path, monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", "1.24.4")
    with pytest.raises(
        ExportError, match=r"`lowering='fused'` needs onnxruntime 1\.25 or newer\. Received: .* 1\.24\.4"
    ):
        export_model(dict_inputs_and_outputs(), tmp_path / "asked", lowering="fused")
    assert not list(tmp_path.iterdir())
    speeds[0]["fused"] = 0.1
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "measured", lowering="auto")
    assert layers(bundle)[0]["lowering"] == "ragged"
    assert bundle.manifest["lowest_onnxruntime"] == "1.19"


@pytest.mark.out_of_turn
def test_every_call_of_a_layer_is_measured(speeds, tmp_path):
    bundle = export_model(shared_layer(), tmp_path / "bundle", lowering="auto")
    assert layers(bundle)[0]["milliseconds"] == [{"portable": 3.0, "ragged": 1.0}] * 2
    assert layers(bundle)[0]["lowering"] == "ragged"


def test_times_are_taken_on_the_samples(speeds, tmp_path):
    rng = np.random.default_rng(0)
    shapes = {"queries": (3, 4, 6), "keys": (3, 9, 8), "values": (3, 9, 5)}
    samples = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    samples["valid_lens"] = np.array([9, 2, 0], "int32")
    export_model(additive(), tmp_path / "bundle", lowering="auto", sample_inputs=samples)
    ((_, shapes),) = speeds[1]
    assert shapes == {"queries": (3, 4, 7), "keys": (3, 9, 7), "w_v": (7, 1), "values": (3, 9, 5), "valid_lens": (3,)}


def test_without_samples_the_largest_plain_case_is_timed():
    cases = [
        Case("base", {"x": np.ones((2, 3), "float32")}, {}),
        Case("large", {"x": np.full((4, 3), 0.5, "float32")}, {}),
        Case("zeros", {"x": np.zeros((9, 3), "float32")}, {}),
        Case("poisoned padding", {"x": np.full((9, 3), np.nan, "float32")}, {}),
    ]
    chosen, timed = fastest._cases_to_run(Cases({}, cases))
    assert list(chosen)[timed] == "large"


def test_cases_that_would_take_much_more_memory_are_not_run():
    sizes = {"base": 4, "samples": 2, "wide": 5}
    cases = [Case(name, {"x": np.ones((size, 3), "float32")}, {}) for name, size in sizes.items()]
    chosen, timed = fastest._cases_to_run(Cases({}, cases))
    assert list(chosen) == ["base", "samples"]
    assert timed == 1


def test_what_is_measured_is_real(tmp_path):
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    (times,) = layers(bundle)[0]["milliseconds"]
    assert set(times) == {"portable", "fused", "ragged"}
    assert all(0 < time < 1000 for time in times.values())
    fastest = min(times, key=times.get)
    assert layers(bundle)[0]["lowering"] in (fastest, "portable")


def test_the_command_prints_choice_and_times(speeds, tmp_path, capsys):
    dict_inputs_and_outputs().save(tmp_path / "model.keras")
    command = ["export", str(tmp_path / "model.keras"), str(tmp_path / "bundle"), "--lowering", "auto"]
    assert main(command) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "attention (DotProductAttention): ragged, float32" in printed
    assert "attention took: ragged 1 ms, fused 2 ms, portable 3 ms" in printed
    assert main([*command, "--overwrite", "--json"]) == 0
    json.loads(capsys.readouterr().out)
