"""A decoder in steps on disk: what is checked before it is opened, and the loop that `generate` runs."""

import copy
import pickle

import numpy as np
import onnxruntime
import pytest
from bundles import alter_manifest, flip_byte, read_manifest, reseal
from steps_bundles import FEEDS, LONGEST, answer_of, counting_bundle, inputs_of

from keras_attn_export import BundleError, ExportError, ParityError, load_bundle, verify_bundle
from keras_attn_export._bundle.atomic_folder import staged_folder
from keras_attn_export._bundle.step_values import OnCpu, OnDevice
from keras_attn_export._bundle.steps import generated
from keras_attn_export._standalone import verify

pytest_plugins = ("bundle_fixtures",)


@pytest.fixture
def counting(tmp_path):
    return counting_bundle(tmp_path / "counting")


def assert_answers(found, expected):
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-6, err_msg=name)


def run_by(bundle, runner, lefts):
    """Return what the loop gives with runners of this kind."""
    runners = {name: runner(part.session()) for name, part in bundle.parts.items()}
    manifests = {name: part.manifest for name, part in bundle.parts.items()}
    return generated(bundle.manifest, manifests, runners, inputs_of(lefts))


@pytest.mark.parametrize("lefts", [[], [6], [5, 1, 1, 1, 2, 9, 4, 1]], ids=str)
def test_each_row_ends_by_itself(counting, lefts):
    bundle = load_bundle(counting)
    found = bundle.generate(inputs_of(lefts))
    assert_answers(found, answer_of(lefts))
    for other in (bundle, pickle.loads(pickle.dumps(bundle)), copy.deepcopy(bundle)):
        assert_answers(other.run(inputs_of(lefts)), found)


def on_device(session):
    """The way of CUDA, whose values are bound, here in the memory of the CPU."""
    return OnDevice(session, onnxruntime, "cpu")


@pytest.mark.parametrize("runner", [OnCpu, on_device])
def test_runners_of_both_kinds(counting, runner):
    bundle, lefts = load_bundle(counting), [1, 4, 1, 1, 2, 1]
    assert_answers(run_by(bundle, runner, lefts), answer_of(lefts))
    step = runner(bundle.parts["step"].session())
    values = {"token": step.put(np.zeros(2, "int32")), "position": step.put(np.zeros(5, "int64"))}
    with pytest.raises(ExportError, match=r"cannot run the model on inputs `token` \(2,\), `position` \(5,\): "):
        step.run(values, ["logits"])


def test_without_an_end_all_steps_are_taken_from_one_start(tmp_path):
    bundle = load_bundle(counting_bundle(tmp_path / "endless", end=None, start=5))
    found = bundle.generate(inputs_of([2, 9]))
    assert found["lengths"].tolist() == [LONGEST, LONGEST]
    assert found["tokens"].tolist() == [[2, 1, 1, 1, 1, 1], [2] * 6]
    assert found["shown"][:, 0, 0].tolist() == [5, 5]


def test_what_is_for_one_kind_of_bundle(counting, exported):
    bundle = load_bundle(counting)
    for ask in (bundle.session, bundle.write_report):
        with pytest.raises(BundleError, match=r"is a decoder in steps, .* one of them: .*encoder or .*step\.$"):
            ask()
    with pytest.raises(BundleError, match=r"`generate` is for a decoder, .* Received: .*, which gives \['context',"):
        load_bundle(exported).generate({})


def test_every_file_is_checked_and_a_damaged_folder_may_be_replaced(counting):
    files = sorted(read_manifest(counting)["sha256"])
    assert {"encoder/model.onnx", "step/model.onnx", "encoder/manifest.json", "parity/cases.npz"} <= {*files}
    for name in [*files, "manifest.json"]:
        content = (counting / name).read_bytes()
        flip_byte(counting / name)
        with pytest.raises(BundleError, match=r"is not (the file that was|a bundle's manifest|the manifest)"):
            load_bundle(counting)
        (counting / name).write_bytes(content)
    (counting / "step" / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"holds step/notes\.txt, which its manifest does not list"):
        load_bundle(counting)
    (counting / "manifest.json").write_text("{")
    with staged_folder(counting, overwrite=True) as folder:
        (folder / "new").write_text("")
    assert (counting / "new").is_file()


BAD = [
    ({"feeds": ...}, "it says nothing of feeds"),
    ({"max_length": 0}, "`max_length` must be"),
    ({"start": {"from": "encoder output", "name": "nothing"}}, "`start` must be"),
    ({"feeds": FEEDS[1:]}, "`feeds` must say of each input of the step"),
    ({"feeds": [{**FEEDS[0], "then": None}, *FEEDS[1:]]}, "what feeds `token` first"),
    ({"feeds": [*FEEDS[:3], {**FEEDS[3], "first": {"from": "zeros", "shape": [-1]}}, FEEDS[4]]}, "`cache` first"),
]


@pytest.mark.parametrize(("entries", "problem"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_a_manifest_that_says_what_cannot_be(counting, entries, problem):
    alter_manifest(counting, **entries)
    with pytest.raises(BundleError, match=rf"is not the manifest of a decoder in steps: .*{problem}"):
        load_bundle(counting)


@pytest.mark.parametrize("name", ["tokens", "lengths", "scores", "shown"])
def test_verify_replays_parts_and_answers(counting, name):
    assert {row.case for row in verify_bundle(counting).rows} == {"encoder: ones", "step: ones", "counts"}
    (case,) = verify.load_cases(counting / verify.CASES)
    case.outputs[name][1] += 1
    verify.save_cases(counting / verify.CASES, [case])
    reseal(counting, verify.CASES)
    with pytest.raises(ParityError, match=f"output `{name}` .* in case `counts`"):
        verify_bundle(counting)
