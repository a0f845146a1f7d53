"""`lowering="auto"` keeps the fastest form that gives the right numbers, and says what it measured."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from export_models import additive, dict_inputs_and_outputs, shared_layer

from keras_attn_export import ExportError, export_model
from keras_attn_export._cli.describe import describe
from keras_attn_export._cli.main import main
from keras_attn_export._lowerings import bodies, fastest
from keras_attn_export._standalone.verify import Case
from keras_attn_export._tracing.saved_model_run import SavedModelRun


@pytest.fixture
def speeds(monkeypatch):
    """Milliseconds as given here, in place of measured ones; what was raced against what, and on which shapes."""
    table = {"portable": 4.0, "adaptive": 3.0, "fused": 2.0, "ragged": 1.0}
    sessions, races = {}, []
    real = fastest._session

    def session(lowered, track):
        opened = real(lowered, track)
        sessions[opened] = set(lowered.lowerings.values())
        return opened

    def raced(standing, other, arrays):
        first, second = ("+".join(sorted(sessions[each])) for each in (standing, other))
        races.append((first, second, {name: array.shape for name, array in arrays.items()}))
        ratio = table[second] / table[first]
        return table[first] / 1e3, fastest.Ratio(ratio, ratio, ratio)

    monkeypatch.setattr(fastest, "_session", session)
    monkeypatch.setattr(fastest, "_raced", raced)
    return table, races


@pytest.mark.fresh_process
def test_nothing_runs_beside_what_is_timed(speeds, monkeypatch, tmp_path):
    running, raced = [], fastest._raced
    begin = SavedModelRun.begin

    def begun(run, *arguments):
        running.append(run._process)
        begin(run, *arguments)

    def alone(*arguments):
        assert [process.poll() for process in running] == [0]
        return raced(*arguments)

    monkeypatch.setattr(SavedModelRun, "begin", begun)
    monkeypatch.setattr(fastest, "_raced", alone)
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    assert speeds[1]
    assert bundle.report.saved_model_rows


def layers(bundle):
    return bundle.manifest["layers"]


def functions(bundle):
    return {function.name for function in onnx.load(bundle.path / "model.onnx").functions}


@pytest.mark.parametrize(
    "fastest",
    ["portable", "fused", *(pytest.param(each, marks=pytest.mark.out_of_turn) for each in ("adaptive", "ragged"))],
)
def test_the_fastest_is_kept(fastest, speeds, tmp_path):
    speeds[0][fastest] = 0.5
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    (layer,) = layers(bundle)
    assert layer["lowering"] == fastest
    assert layer["milliseconds"] == [pytest.approx(speeds[0])]
    assert layer["unclear"] == [[]]
    assert functions(bundle) == (set() if fastest == "portable" else {"dot_product_0"})
    assert bundle.manifest["opset"] == (24 if fastest in ("fused", "adaptive") else 18)
    assert bundle.report.passed


def test_the_form_by_size_stays_unless_another_is_clearly_faster(speeds, tmp_path):
    speeds[0].update(adaptive=1.0, ragged=0.98, fused=1.5)
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    assert layers(bundle)[0]["lowering"] == "adaptive"


def test_what_cannot_be_told_is_said_and_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(fastest, "_raced", lambda *_: (0.001, fastest.Ratio(0.5, 0.8, 1.2)))
    steps = []
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto", progress=steps.append)
    assert layers(bundle)[0]["lowering"] == "adaptive"
    assert layers(bundle)[0]["unclear"] == [["portable", "fused", "ragged"]]
    assert "Could not tell whether fused is faster for attention, which stays adaptive" in steps
    assert "could not tell whether portable, fused, ragged would be faster" in " ".join(describe(bundle).split())


@pytest.mark.parametrize(
    ("ratios", "low", "high", "clear"),
    [
        ([0.5] * 6, 0.5, 0.5, True),
        ([1.2] * 6, 1.2, 1.2, True),
        ([0.5, 0.6, 0.7, 0.8, 0.9, 1.5], 0.5, 1.5, False),
        ([0.5] + [0.9] * 14 + [1.5], 0.9, 0.9, True),  # 4 of 16 rounds are left out at either end
        ([0.5] * 5 + [1.0] * 6 + [1.5] * 5, 0.5, 1.5, False),
        ([0.97] * 6, 0.97, 0.97, True),
    ],
)
def test_a_choice_is_clear_where_its_range_is_on_one_side(ratios, low, high, clear):
    found = fastest.ratio_of(ratios[::-1])
    assert (found.low, found.median, found.high) == (low, float(np.median(ratios)), high)
    assert found.is_clear == clear


class Timed:
    """A session that takes as long as it is told, one run after the other."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.runs = clock, itertools.cycle(seconds), 0

    def run(self, names, arrays):
        self.clock[0] += next(self.seconds)
        self.runs += 1


def race(monkeypatch, standing, other):
    clock = [0.0]
    monkeypatch.setattr(fastest.time, "perf_counter", lambda: clock[0])
    pair = Timed(clock, standing), Timed(clock, other)
    return *fastest._raced(*pair, {}), pair[0].runs


def test_a_race_ends_as_soon_as_it_is_clear(monkeypatch):
    seconds, ratio, runs = race(monkeypatch, [1e-3], [5e-4])
    assert seconds == pytest.approx(1e-3)
    assert ratio.median == pytest.approx(0.5)
    assert runs == fastest.FEWEST_ROUNDS * (1 + fastest.RUNS)


def test_a_race_goes_on_until_it_is_clear(monkeypatch):
    *_, ratio, runs = race(monkeypatch, [1e-4], [1e-5] * 6 + [2e-4] * 3 + [1e-5] * 30)
    assert ratio.is_clear
    assert runs > fastest.FEWEST_ROUNDS * (1 + fastest.RUNS)


def test_a_race_that_stays_unclear_ends(monkeypatch):
    monkeypatch.setattr(fastest, "SECONDS", 0.05)
    *_, ratio, runs = race(monkeypatch, [1e-3], [5e-4] * 3 + [2e-3] * 3)
    assert not ratio.is_clear
    assert runs < 100


def test_a_model_that_takes_long_is_raced_for_few_rounds(monkeypatch):
    _, ratio, runs = race(monkeypatch, [1.0], [0.1])
    assert not ratio.is_clear
    assert runs == 1 + fastest.RUNS


def test_the_first_run_of_a_turn_does_not_count(monkeypatch):
    monkeypatch.setattr(fastest, "SECONDS", 100)
    seconds, ratio, _ = race(monkeypatch, [1.0, 1e-3, 1e-3], [2e-3])
    assert seconds == pytest.approx(1e-3)
    assert ratio.median == pytest.approx(2.0)


def break_form(monkeypatch, lowering, right, wrong):
    """Put a fault into a lowering, where it is written for itself."""
    form = bodies.BODIES[lowering]
    whole = form.body

    def body(call, *opset):
        return whole(call, *opset).replace(right, wrong)

    broken = SimpleNamespace(body=body, fits=form.fits, LOWEST_OPSET=form.LOWEST_OPSET)
    monkeypatch.setitem(bodies.BODIES, lowering, broken)
    if lowering == "adaptive":
        monkeypatch.setattr(bodies.adaptive, "body", body)


FAULTS = pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("scale = 0", "scale = 10", id="gives other numbers"),
        pytest.param("num_heads = 1", "num_heads = 4", id="does not load", marks=pytest.mark.out_of_turn),
    ],
)


@FAULTS
def test_one_that_is_wrong_is_not_kept_however_fast(right, wrong, speeds, tmp_path, monkeypatch):
    break_form(monkeypatch, "fused", right, wrong)
    speeds[0]["fused"] = 0.1
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    assert layers(bundle)[0]["lowering"] == "ragged"
    assert "fused" not in layers(bundle)[0]["milliseconds"][0]


@FAULTS
def test_where_the_form_by_size_is_wrong_plain_primitives_are_what_stays(right, wrong, speeds, tmp_path, monkeypatch):
    break_form(monkeypatch, "adaptive", right, wrong)
    speeds[0].update(fused=3.99, ragged=5.0)
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    assert layers(bundle)[0]["lowering"] == "portable"
    assert set(layers(bundle)[0]["milliseconds"][0]) == {"portable", "fused", "ragged"}


def test_what_does_not_match_in_the_end_is_written_plainly(speeds, tmp_path, monkeypatch):
    break_form(monkeypatch, "fused", "scale = 0", "scale = 10")
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
    assert [other for _, other, _ in speeds[1]] == ["portable", "ragged"]


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
    assert layers(bundle)[0]["milliseconds"] == [{"adaptive": 3.0, "portable": 4.0, "ragged": 1.0}] * 2
    assert layers(bundle)[0]["lowering"] == "ragged"


def test_times_are_taken_on_the_samples(speeds, tmp_path):
    rng = np.random.default_rng(0)
    shapes = {"queries": (3, 4, 6), "keys": (3, 9, 8), "values": (3, 9, 5)}
    samples = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    samples["valid_lens"] = np.array([9, 2, 0], "int32")
    export_model(additive(), tmp_path / "bundle", lowering="auto", sample_inputs=samples)
    assert {name: array.shape for name, array in samples.items()} == speeds[1][0][2]


def test_without_samples_the_largest_plain_case_is_timed():
    cases = [
        Case("base", {"x": np.ones((2, 3), "float32")}, {}),
        Case("large", {"x": np.full((4, 3), 0.5, "float32")}, {}),
        Case("zeros", {"x": np.zeros((9, 3), "float32")}, {}),
        Case("poisoned padding", {"x": np.full((9, 3), np.nan, "float32")}, {}),
    ]
    chosen, timed = fastest._cases_to_run(cases)
    assert chosen[timed].name == "large"


def test_cases_that_would_take_much_more_memory_are_not_run():
    sizes = {"base": 4, "samples": 2, "wide": 5}
    cases = [Case(name, {"x": np.ones((size, 3), "float32")}, {}) for name, size in sizes.items()]
    chosen, timed = fastest._cases_to_run(cases)
    assert [case.name for case in chosen] == ["base", "samples"]
    assert timed == 1


def test_what_is_measured_is_real(tmp_path):
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto")
    (times,) = layers(bundle)[0]["milliseconds"]
    assert set(times) == {"portable", "adaptive", "fused", "ragged"}
    assert all(0 < time < 1000 for time in times.values())
    assert layers(bundle)[0]["lowering"] in (min(times, key=times.get), "adaptive")


def test_the_command_prints_choice_and_times(speeds, tmp_path, capsys):
    dict_inputs_and_outputs().save(tmp_path / "model.keras")
    command = ["export", str(tmp_path / "model.keras"), str(tmp_path / "bundle"), "--lowering", "auto"]
    assert main(command) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "attention (DotProductAttention): ragged, float32" in printed
    assert "attention: the model took ragged 1 ms, fused 2 ms, adaptive 3 ms, portable 4 ms" in printed
    assert main([*command, "--overwrite", "--json"]) == 0
    json.loads(capsys.readouterr().out)
