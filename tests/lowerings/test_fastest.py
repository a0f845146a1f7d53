"""`lowering="auto"` keeps the fastest form that gives the right numbers, and says what it measured."""

import itertools
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from export_models import dict_inputs_and_outputs

from keras_attn_export import ExportError, export_model, load_bundle
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
@pytest.mark.parametrize(
    ("times", "kept"), [({"fused": 0.5}, "fused"), ({"adaptive": 1.0, "ragged": 0.98, "fused": 1.5}, "adaptive")]
)
def test_the_form_by_size_stays_unless_another_is_clearly_faster(times, kept, speeds, monkeypatch, tmp_path):
    """And nothing runs beside what is timed, on the samples."""
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
    speeds[0].update(times)
    samples = {name: np.ones((3, length, 6), "float32") for name, length in (("queries", 4), ("keys", 9))}
    samples |= {"values": np.ones((3, 9, 5), "float32"), "valid_lens": np.array([9, 2, 0], "int32")}
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto", sample_inputs=samples)
    (layer,) = bundle.manifest["layers"]
    assert layer["lowering"] == kept
    assert layer["milliseconds"] == [pytest.approx(speeds[0])]
    assert layer["unclear"] == [[]]
    assert {name: array.shape for name, array in samples.items()} == speeds[1][0][2]


def test_what_cannot_be_told_is_said_and_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(fastest, "_raced", lambda *_: (0.001, fastest.Ratio(0.5, 0.8, 1.2)))
    steps = []
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto", progress=steps.append)
    assert bundle.manifest["layers"][0]["lowering"] == "adaptive"
    assert bundle.manifest["layers"][0]["unclear"] == [["portable", "fused", "ragged"]]
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


@pytest.mark.parametrize(
    ("limit", "standing", "other", "clear", "fewest", "most"),
    [
        (2.0, [1e-3], [5e-4], True, 18, 18),  # ends as soon as it is clear
        (2.0, [1e-4], [1e-5] * 6 + [2e-4] * 3 + [1e-5] * 30, True, 19, 900),
        (0.05, [1e-3], [5e-4] * 3 + [2e-3] * 3, False, 1, 99),
        (2.0, [1.0], [0.1], False, 3, 3),  # a model that takes long
        (100.0, [1.0, 1e-3, 1e-3], [5e-4], True, 18, 18),  # whose first run of a turn does not count
    ],
)
def test_a_race(limit, standing, other, clear, fewest, most, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(fastest.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(fastest, "SECONDS", limit)
    pair = Timed(clock, standing), Timed(clock, other)
    seconds, ratio = fastest._raced(*pair, {})
    assert ratio.is_clear == clear
    assert fewest <= pair[0].runs <= most
    if clear and len(other) == 1:
        assert seconds == pytest.approx(1e-3)
        assert ratio.median == pytest.approx(0.5)


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


@pytest.mark.parametrize("agree", [False, True], ids=["found", "found in the end"])
@pytest.mark.parametrize("lowering", ["fused", "adaptive"])
def test_one_that_is_wrong_is_not_kept_however_fast(lowering, agree, speeds, tmp_path, monkeypatch):
    """Where that is the form by size, plain primitives are what stays; and where it is found in the end."""
    form = bodies.BODIES[lowering]
    whole = form.body

    def body(call, *opset):
        return whole(call, *opset).replace("scale = 0", "scale = 10")

    broken = SimpleNamespace(body=body, fits=form.fits, LOWEST_OPSET=form.LOWEST_OPSET)
    monkeypatch.setitem(bodies.BODIES, lowering, broken)
    if lowering == "adaptive":
        monkeypatch.setattr(bodies.adaptive, "body", body)
    if agree:
        monkeypatch.setattr(fastest, "_agree", lambda *_: True)
    speeds[0].update({"fused": 3.99, "ragged": 5.0} if lowering == "adaptive" else {"fused": 0.1})
    (layer,) = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="auto").manifest["layers"]
    assert layer["lowering"] == ("portable" if agree or lowering == "adaptive" else "ragged")
    if not agree:
        assert set(layer["milliseconds"][0]) == {"portable", "fused", "ragged", "adaptive"} - {lowering}


def test_an_onnxruntime_too_old_for_fused(tmp_path, monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", "1.24.4")
    with pytest.raises(
        ExportError, match=r"`lowering='fused'` needs onnxruntime 1\.25 or newer\. Received: .* 1\.24\.4"
    ):
        export_model(dict_inputs_and_outputs(), tmp_path / "asked", lowering="fused")
    assert not list(tmp_path.iterdir())


def test_what_is_measured_is_real(tmp_path, capsys):
    dict_inputs_and_outputs().save(tmp_path / "model.keras")
    assert main(["export", str(tmp_path / "model.keras"), str(tmp_path / "bundle"), "--lowering", "auto"]) == 0
    (layer,) = load_bundle(tmp_path / "bundle").manifest["layers"]
    (times,) = layer["milliseconds"]
    assert set(times) == {"portable", "adaptive", "fused", "ragged"}
    assert all(0 < time < 1000 for time in times.values())
    assert layer["lowering"] in (min(times, key=times.get), "adaptive")
    printed = " ".join(capsys.readouterr().out.split())
    assert f"attention (DotProductAttention): {layer['lowering']}, float32" in printed
    assert "attention: the model took " in printed
