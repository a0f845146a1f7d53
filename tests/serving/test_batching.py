"""Requests are merged only where the golden cases show that examples do not see each other."""

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


def test_examples_that_see_each_other_are_not(centred, tmp_path):
    assert batch_axis(load_bundle(centred).entries) == "batch", "by its axes alone it could be"
    layout = write_layout(centred, tmp_path / "models", target="triton")
    (note,) = layout.notes
    assert note.startswith("requests are not merged: `out` in case `")
    assert note.endswith("` is another when its examples are run one by one")
    text = (layout.folder / "config.pbtxt").read_text()
    assert "max_batch_size: 0\n" in text
    assert "dims: [-1, -1, 4]\n" in text
    assert "--disable-auto-complete-config" in layout.command, "else Triton makes 4 of the 0"


def another(bundle, number, shape):
    """Let an input have another shape."""
    inputs = read_manifest(bundle)["inputs"]
    inputs[number]["shape"] = shape
    alter_manifest(bundle, inputs=inputs)


NO_AXIS = "the first axis of all inputs and outputs is not one dynamic axis"
REFUSED = {
    "fixed": (lambda bundle: another(bundle, 0, [2, "queries_length", 4]), NO_AXIS),
    "scalar": (lambda bundle: another(bundle, 3, []), NO_AXIS),
    "another axis": (lambda bundle: another(bundle, 1, ["other", "keys_length", 6]), NO_AXIS),
    "multiples": (lambda bundle: alter_manifest(bundle, multiples={"batch": 2}), "`batch` must be a multiple of 2"),
    "every case counts": (  # this is the second
        alter_golden_outputs,
        "`context` in case `axes apart` is another when its examples are run one by one",
    ),
}


@pytest.mark.parametrize(("alter", "said"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_allow_it(bundle, alter, said):
    assert why_not_merged(load_bundle(bundle)) is None
    alter(bundle)
    assert why_not_merged(load_bundle(bundle)) == said


@pytest.mark.parametrize(("target", "server"), [("triton", "Triton"), ("tfserving", "TensorFlow Serving")])
def test_multiples_that_a_server_does_not_check_are_told(bundle, tmp_path, target, server):
    alter_manifest(bundle, multiples={"keys_length": 8, "queries_length": 1})
    notes = write_layout(bundle, tmp_path / "models", target=target).notes
    assert notes[-1] == f"`keys_length` must be a multiple of 8, which {server} does not check"
    assert "queries_length" not in " ".join(notes)


def test_nothing_is_taken_for_granted(bundle):
    cases = verify.load_cases(bundle / verify.CASES)
    shorter = cases[0]._replace(inputs=cases[0].inputs | {"keys": cases[0].inputs["keys"][:, :-1]})
    for chosen, said in (
        ([case for case in cases if case.name == "batch 1"], "no golden case has more than one example"),
        ([shorter], "one example of case `base` cannot be "),
    ):
        verify.save_cases(bundle / verify.CASES, chosen)
        reseal(bundle, verify.CASES)
        assert why_not_merged(load_bundle(bundle)).startswith(said)
