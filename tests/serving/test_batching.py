"""Requests are merged only where the golden cases show that examples do not see each other."""

import shutil
import warnings

import keras
import pytest
from bundles import alter_golden_outputs, alter_manifest, read_manifest, reseal

from keras_attn import DotProductAttention
from keras_attn_export import export_model, load_bundle
from keras_attn_export._serving.batching import batch_axis, why_not_merged
from keras_attn_export._serving.layout import write_layout
from keras_attn_export._standalone import verify

pytest_plugins = ("bundle_fixtures",)


@pytest.fixture(scope="module")
def centred(tmp_path_factory):
    """Return a bundle whose examples see each other: each loses the mean of the batch."""
    x = keras.Input((None, 4), name="x")
    out = DotProductAttention(name="attention")(x, x, x)
    out = out - keras.ops.mean(out, axis=0, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return export_model(keras.Model(x, {"out": out}, name="centred"), tmp_path_factory.mktemp("c") / "bundle").path


def reason(path):
    return why_not_merged(load_bundle(path))


def test_examples_apart_are_merged(exported):
    assert reason(exported) is None


def test_examples_that_see_each_other_are_not(centred, tmp_path):
    assert batch_axis(read_manifest(centred)) == "batch", "by its axes alone it could be"
    layout = write_layout(centred, tmp_path / "models", target="triton")
    (note,) = layout.notes
    assert note.startswith("requests are not merged: `out` in case `")
    assert note.endswith("` is another when its examples are run one by one")
    text = (layout.folder / "config.pbtxt").read_text()
    assert "max_batch_size: 0\n" in text
    assert "dims: [-1, -1, 4]\n" in text
    assert "dynamic_batching" not in text
    assert "--disable-auto-complete-config" in layout.command, "else Triton makes 4 of the 0"


def test_every_case_counts(bundle):
    alter_golden_outputs(bundle)  # of the second
    assert reason(bundle) == "`context` in case `axes apart` is another when its examples are run one by one"


@pytest.mark.parametrize(
    "change",
    [
        lambda inputs: inputs[0]["shape"].__setitem__(0, 2),
        lambda inputs: inputs[3]["shape"].clear(),
        lambda inputs: inputs[1]["shape"].__setitem__(0, "other"),
    ],
    ids=["fixed", "scalar", "another axis"],
)
def test_axes_that_do_not_allow_it(bundle, change):
    inputs = read_manifest(bundle)["inputs"]
    change(inputs)
    alter_manifest(bundle, inputs=inputs)
    assert reason(bundle) == "the first axis of all inputs and outputs is not one dynamic axis"


def test_a_batch_of_multiples(bundle):
    alter_manifest(bundle, multiples={"batch": 2})
    assert reason(bundle) == "`batch` must be a multiple of 2"


@pytest.mark.parametrize(("target", "server"), [("triton", "Triton"), ("tfserving", "TensorFlow Serving")])
def test_multiples_that_a_server_does_not_check_are_told(bundle, tmp_path, target, server):
    alter_manifest(bundle, multiples={"keys_length": 8, "queries_length": 1})
    notes = write_layout(bundle, tmp_path / "models", target=target).notes
    assert notes[-1] == f"`keys_length` must be a multiple of 8, which {server} does not check"
    assert "queries_length" not in " ".join(notes)


def with_cases(exported, folder, chosen):
    bundle = shutil.copytree(exported, folder)
    cases = verify.load_cases(bundle / verify.CASES)
    verify.save_cases(bundle / verify.CASES, chosen(cases))
    reseal(bundle, verify.CASES)
    return bundle


def test_nothing_is_taken_for_granted(exported, tmp_path):
    single = with_cases(exported, tmp_path / "single", lambda cases: [c for c in cases if c.name == "batch 1"])
    assert reason(single) == "no golden case has more than one example"


def test_a_case_that_cannot_be_run_alone(exported, tmp_path):
    def longer_keys(cases):
        inputs = dict(cases[0].inputs)
        inputs["keys"] = inputs["keys"][..., :-1]
        return [cases[0]._replace(inputs=inputs)]

    assert reason(with_cases(exported, tmp_path / "b", longer_keys)).startswith("one example of case `base` cannot be ")
