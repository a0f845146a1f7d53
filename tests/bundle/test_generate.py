"""A decoder in steps on disk: what is checked before it is opened, and the loop that `generate` runs."""

import copy
import json
import pickle

import numpy as np
import onnxruntime
import pytest
from bundles import alter_manifest, flip_byte, read_manifest
from steps_bundles import END, FEEDS, LONGEST, answer_of, counting_bundle, inputs_of

from keras_attn_export import BundleError, ExportError, InputError, ParityError, load_bundle, verify_bundle
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
        assert found[name].dtype == array.dtype, name
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-6, err_msg=name)


class Spy:
    """A session that counts its runs, and the rows of each."""

    def __init__(self, session):
        self._session = session
        self.rows = []

    def run(self, outputs, inputs):
        self.rows.append(len(inputs["token"]) if "token" in inputs else len(inputs["left"]))
        return self._session.run(outputs, inputs)


def spied(bundle):
    """What runs the parts, and the session of the step, which tells how it was run."""
    spies = {name: Spy(part.session()) for name, part in bundle.parts.items()}
    return {name: OnCpu(spy) for name, spy in spies.items()}, spies


def manifests(bundle):
    return {name: part.manifest for name, part in bundle.parts.items()}


# ------------------------------------------------------------------- the loop


@pytest.mark.parametrize("lefts", [[1], [6], [9], [3, 1, 2], [1, 1, 1], [5, 1, 1, 1, 2, 9, 4, 1]], ids=str)
def test_each_row_ends_by_itself(counting, lefts):
    bundle = load_bundle(counting)
    found = bundle.generate(inputs_of(lefts))
    assert_answers(found, answer_of(lefts))
    assert_answers(bundle.run(inputs_of(lefts)), found)


def test_the_loop_ends_with_the_last_row_and_rows_leave(counting):
    bundle = load_bundle(counting)
    runners, spies = spied(bundle)
    lefts = [1, 4, 1, 1, 2, 1]
    found = generated(bundle.manifest, manifests(bundle), runners, inputs_of(lefts))
    assert_answers(found, answer_of(lefts))
    assert spies["encoder"].rows == [6]
    # 4 of 6 end at the first step; of the 2 left one ends at the second, and half of them is not more than half
    assert spies["step"].rows == [6, 2, 2, 2]


def test_rows_stay_where_the_file_takes_one_batch(counting):
    bundle = load_bundle(counting)
    runners, spies = spied(bundle)
    fixed = copy.deepcopy(manifests(bundle))
    fixed["step"]["inputs"][0]["shape"][0] = 3
    found = generated(bundle.manifest, fixed, runners, inputs_of([1, 3, 1]))
    assert_answers(found, answer_of([1, 3, 1]))
    assert spies["step"].rows == [3, 3, 3]


def test_without_an_end_all_steps_are_taken(tmp_path):
    bundle = load_bundle(counting_bundle(tmp_path / "endless", end=None))
    found = bundle.generate(inputs_of([2, 9]))
    assert found["lengths"].tolist() == [LONGEST, LONGEST]
    assert found["tokens"].tolist() == [[2, 1, 1, 1, 1, 1], [2] * 6]
    assert found["shown"][:, :, 1].tolist() == [[0, 1, 2, 3, 4, 5]] * 2


def test_what_follows_an_end_are_ends_and_zeros(counting):
    found = load_bundle(counting).generate(inputs_of([2, 4]))
    assert found["tokens"][0].tolist() == [2, END, END, END, END, END]
    assert not found["shown"][0, 2:].any()
    assert found["shown"][1, 3].any()


def test_a_start_for_all(tmp_path):
    bundle = load_bundle(counting_bundle(tmp_path / "started", start=5))
    assert bundle.generate(inputs_of([2, 1]))["shown"][:, 0, 0].tolist() == [5, 5]


def test_the_first_of_equal_logits_is_taken(counting):
    inputs = inputs_of([1, 3])
    inputs["seen"][:] = 1  # as large as that of the end
    assert load_bundle(counting).generate(inputs)["tokens"][0, 0] == END
    inputs["seen"][:] = 0  # as large as that of token 0
    assert load_bundle(counting).generate(inputs)["tokens"][1, 0] == 0


def test_no_row_at_all(counting):
    found = load_bundle(counting).generate(inputs_of(np.zeros(0)))
    assert {name: array.shape for name, array in found.items()} == {
        "tokens": (0, LONGEST),
        "lengths": (0,),
        "scores": (0,),
        "shown": (0, LONGEST, 3),
    }


@pytest.mark.parametrize("lefts", [[2], [1, 4, 1, 1, 2, 1]], ids=str)
def test_values_on_a_device(counting, lefts):
    """The way of CUDA, whose values are bound, here in the memory of the CPU."""
    bundle = load_bundle(counting)
    runners = {name: OnDevice(part.session(), onnxruntime, "cpu") for name, part in bundle.parts.items()}
    assert_answers(generated(bundle.manifest, manifests(bundle), runners, inputs_of(lefts)), answer_of(lefts))


def test_a_cache_is_not_copied(counting):
    """What a step gives is what the next reads, and what is collected is read where it is."""
    bundle = load_bundle(counting)
    runners, _ = spied(bundle)
    given, taken, plain = [], [], runners["step"].run

    def run(values, outputs, read=()):
        taken.append(values["cache"])
        out = plain(values, outputs, read)
        given.append(out["cache_out"])
        return out

    runners["step"].run = run
    generated(bundle.manifest, manifests(bundle), runners, inputs_of([3, 3]))
    assert [id(array) for array in taken[1:]] == [id(array) for array in given[:-1]]


@pytest.mark.parametrize("runner", ["run", "bound"])
def test_a_run_that_fails_says_on_what(counting, runner):
    bundle = load_bundle(counting)
    session = bundle.parts["step"].session()
    step = OnCpu(session) if runner == "run" else OnDevice(session, onnxruntime, "cpu")
    values = {"token": step.put(np.zeros(2, "int32")), "position": step.put(np.zeros(5, "int64"))}
    with pytest.raises(ExportError, match=r"cannot run the model on inputs `token` \(2,\), `position` \(5,\): "):
        step.run(values, ["logits"])


def test_an_empty_axis_on_which_a_run_fails_is_named(counting):
    bundle = load_bundle(counting)
    runners, _ = spied(bundle)
    inputs = inputs_of([1, 2]) | {"seen": np.zeros((2, 0), "float32")}
    with pytest.raises(ExportError, match=r"no axis of size 0 .* Received: `seen` \(2, 0\)\. .* cannot run the model"):
        generated(bundle.manifest, manifests(bundle), runners, inputs)
    inputs["seen"] = np.zeros((2, 3), "float32")
    with pytest.raises(ExportError, match=r"^onnxruntime cannot run the model on inputs"):
        generated(bundle.manifest, manifests(bundle), runners, inputs)


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({"left": [[1.0]]}, r"Inputs \['seen', 'which'\] are missing"),
        (inputs_of([1]) | {"more": [1]}, r"Inputs \['more'\] are unknown"),
        (inputs_of([1, 2]) | {"which": [1]}, "where `batch` is 2"),
        (inputs_of([1]) | {"which": [1.5]}, "dtype int64"),
    ],
    ids=str,
)
def test_inputs_that_do_not_fit(counting, inputs, error):
    with pytest.raises(InputError, match=error):
        load_bundle(counting).generate(inputs)


def test_a_bundle_that_is_no_decoder(exported):
    with pytest.raises(BundleError, match=r"`generate` is for a decoder, .* Received: .*, which gives \['context',"):
        load_bundle(exported).generate({})


def test_what_is_for_one_file_names_the_two(counting, tmp_path):
    bundle = load_bundle(counting)
    for ask in (bundle.session, bundle.write_report):
        with pytest.raises(BundleError, match=r"is a decoder in steps, .* one of them: .*encoder or .*step\.$"):
            ask()
    assert bundle.parts["step"].session().get_inputs()


def test_a_copy_opens_its_own_sessions(counting):
    bundle = load_bundle(counting)
    bundle.generate(inputs_of([1]))
    for made in (pickle.loads(pickle.dumps(bundle)), copy.deepcopy(bundle)):
        assert_answers(made.generate(inputs_of([2, 1])), answer_of([2, 1]))


# ------------------------------------------------------------------ the folder


def test_every_file_is_checked(counting):
    files = sorted(read_manifest(counting)["sha256"])
    assert {"encoder/model.onnx", "step/model.onnx", "encoder/manifest.json", "parity/cases.npz"} <= {*files}
    for name in files:
        content = (counting / name).read_bytes()
        flip_byte(counting / name)
        with pytest.raises(BundleError, match=r"is not the file that was exported|is not a bundle's manifest"):
            load_bundle(counting)
        (counting / name).write_bytes(content)
    load_bundle(counting)


def test_a_file_more_or_less(counting):
    (counting / "step" / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"holds step/notes\.txt, which its manifest does not list"):
        load_bundle(counting)
    (counting / "step" / "notes.txt").unlink()
    (counting / "encoder" / "model.onnx").unlink()
    with pytest.raises(BundleError, match=r"is incomplete: encoder/model\.onnx is missing"):
        load_bundle(counting)


def test_a_part_of_another_decoder(counting, tmp_path):
    """Each part is whole by itself, so only the manifest above tells that they do not belong together."""
    other = counting_bundle(tmp_path / "other")
    alter_manifest(other / "step", model="another")
    (other / "step").rename(tmp_path / "step")
    (counting / "step").rename(tmp_path / "old")
    (tmp_path / "step").rename(counting / "step")
    with pytest.raises(BundleError, match=r"step.manifest\.json is not the file that was exported"):
        load_bundle(counting)


def test_a_part_that_lists_other_files(counting):
    hashes = read_manifest(counting)["sha256"]
    alter_manifest(counting, sha256=hashes | {"step/verify.py": "0" * 64})
    with pytest.raises(BundleError, match="step is not the bundle that was exported"):
        load_bundle(counting)


BAD = [
    ({"feeds": ...}, "it says nothing of feeds"),
    ({"max_length": 0}, "`max_length` must be"),
    ({"max_length": True}, "`max_length` must be"),
    ({"max_length": 2**31}, "`max_length` must be"),
    ({"end": "1"}, "`end` must be"),
    ({"end": 2**31}, "`end` must be"),
    ({"start": -(2**31) - 1}, "`start` must be"),
    ({"start": {"from": "encoder output", "name": "nothing"}}, "`start` must be"),
    ({"start": {"from": "step output", "name": "next"}}, "`start` must be"),
    ({"logits": "begin"}, "`logits` must name"),
    ({"collected": ["shown"]}, "`collected` must name"),
    ({"collected": {"shown": "state"}}, "`collected` must name"),
    ({"collected": {}}, "`outputs` must be tokens, lengths, scores and what is `collected`"),
    ({"feeds": FEEDS[1:]}, "`feeds` must say of each input of the step"),
    ({"feeds": [*FEEDS, FEEDS[0]]}, "`feeds` must say of each input of the step"),
    ({"feeds": {}}, "`feeds` must be a list"),
    ({"feeds": [{**FEEDS[0], "first": {"from": "a guess"}}, *FEEDS[1:]]}, "what feeds `token` first"),
    ({"feeds": [{**FEEDS[0], "then": None}, *FEEDS[1:]]}, "what feeds `token` first"),
    ({"feeds": [*FEEDS[:3], {**FEEDS[3], "first": {"from": "zeros", "shape": [-1]}}, FEEDS[4]]}, "`cache` first"),
    ({"feeds": [*FEEDS[:3], {**FEEDS[3], "first": {"from": "start"}}, FEEDS[4]]}, "`cache` first"),
    ({"feeds": [*FEEDS[:3], {**FEEDS[3], "first": {"from": "position"}}, FEEDS[4]]}, "`cache` first"),
    ({"feeds": [*FEEDS[:4], {**FEEDS[4], "first": FEEDS[2]["first"]}]}, "must be the same at each step"),
    ({"inputs": [{"name": "left", "dtype": "float32", "shape": ["batch", 1]}]}, "must be those of the encoder"),
    ({"outputs": [{"name": "tokens"}]}, "`outputs` must be a list of names"),
    ({"sha256": []}, "`sha256` must give a hash"),
]


@pytest.mark.parametrize(("entries", "problem"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_a_manifest_that_says_what_cannot_be(counting, entries, problem):
    alter_manifest(counting, **entries)
    with pytest.raises(BundleError, match=rf"is not the manifest of a decoder in steps: .*{problem}"):
        load_bundle(counting)


def test_a_manifest_of_another_version_or_altered(counting):
    file = counting / "manifest.json"
    altered = file.read_text().replace('"max_length": 6', '"max_length": 7')
    assert altered != file.read_text()
    file.write_text(altered)
    with pytest.raises(BundleError, match="does not match its own `manifest_sha256`"):
        load_bundle(counting)
    alter_manifest(counting, schema_version=4)
    with pytest.raises(BundleError, match="schema version 4"):
        load_bundle(counting)


# ------------------------------------------------------------------ the proof


def test_verify_replays_parts_and_answers(counting):
    report = verify_bundle(counting)
    assert {row.case for row in report.rows} == {"encoder: ones", "step: ones", "counts"}
    assert {row.name for row in report.rows if row.case == "counts"} == {"tokens", "lengths", "scores", "shown"}


def alter_answer(folder, change):
    """Let the golden answer be another, and seal the folder again."""
    (case,) = verify.load_cases(folder / verify.CASES)
    change(case.outputs)
    verify.save_cases(folder / verify.CASES, [case])
    hashes = read_manifest(folder)["sha256"]
    alter_manifest(folder, sha256=hashes | {verify.CASES: verify.sha256(folder / verify.CASES)})


@pytest.mark.parametrize("name", ["tokens", "lengths", "scores", "shown"])
def test_verify_sees_an_answer_that_differs(counting, name):
    def change(outputs):
        outputs[name][1] += 1

    alter_answer(counting, change)
    with pytest.raises(ParityError, match=f"output `{name}` .* in case `counts`"):
        verify_bundle(counting)


def test_it_is_replaced_as_a_bundle_is(counting):
    with staged_folder(counting, overwrite=True) as folder:
        (folder / "new").write_text("")
    assert (counting / "new").is_file()
    for damaged in ("{", json.dumps({"schema_version": 9, "sha256": {}})):
        (counting / "manifest.json").write_text(damaged)
        with (
            pytest.raises(BundleError, match="holds no bundle; it will not be replaced"),
            staged_folder(counting, overwrite=True),
        ):
            pass


def test_a_damaged_one_is_replaced_too(counting):
    (counting / "manifest.json").write_text("{")
    with staged_folder(counting, overwrite=True) as folder:
        (folder / "new").write_text("")
    assert (counting / "new").is_file()
