"""A decoder in steps: exported, proven and run as the Keras model that holds the loop."""

import json
import warnings

import keras
import numpy as np
import onnxruntime
import pytest
from bundles import names
from decoding_models import END, LENGTH, START, TOKENS, arrays, attending, growing, ids_of, recurrent
from step_models import BLOCKS, HEADS, SIZE, WIDTH, growing_caches

from keras_attn.decoding import beam, greedy
from keras_attn_export import (
    Bundle,
    InputError,
    ParityError,
    UnsupportedModelError,
    export_model,
    load_bundle,
    verify_bundle,
)
from keras_attn_export._bundle.steps_manifest import ANSWER
from keras_attn_export._export.feeds import feeds_of, start_of, step_samples
from keras_attn_export._model.growing_caches import EMPTY_CACHE
from keras_attn_export._standalone import verify

PAST = [f"past_key_values.{n}.{part}" for n in range(BLOCKS) for part in ("key", "value")]


def firsts_of(count, seed=0):
    return {"first": np.random.default_rng(seed).normal(size=(count, WIDTH)).astype("float32")}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    model = greedy(*growing_caches(), start=START, end=END, max_length=LENGTH)
    path = tmp_path_factory.mktemp("in_steps") / "bundle"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a name with dots is nothing to be warned of
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        return model, export_model(model, path, in_steps=True, sample_inputs=firsts_of(5, seed=1))


def test_the_folder_and_its_proof(exported):
    model, bundle = exported
    assert names(bundle.path) == ["encoder", "manifest.json", "parity", "step"]
    assert bundle.report.passed
    assert bundle.report.warnings == ()
    assert {row.name for row in bundle.report.rows} == {"tokens", "lengths", "scores"}
    assert (bundle.manifest["model"], bundle.manifest["max_length"]) == (model.name, LENGTH)
    outputs = {spec["name"]: (spec["dtype"], spec["shape"]) for spec in bundle.manifest["outputs"]}
    assert outputs == {
        "tokens": ("int32", ["batch", LENGTH]),
        "lengths": ("int32", ["batch"]),
        "scores": ("float32", ["batch"]),
    }
    for part in bundle.parts.values():
        assert load_bundle(part.path).manifest == part.manifest


@pytest.mark.parametrize("count", [1, 33])
def test_generate_answers_as_keras(exported, count):
    model, bundle = exported
    inputs = firsts_of(count, seed=count)
    found, expected = bundle.generate(inputs), arrays(model(inputs))
    assert set(found) == set(expected)
    for key, array in expected.items():
        assert found[key].dtype == array.dtype, key
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
    if count == 33:
        assert len(set(found["lengths"].tolist())) > 2  # rows leave at different steps


def test_verify_replays_all_three_and_compares_samples_with_the_model(exported):
    model, bundle = exported
    report = verify_bundle(bundle.path, samples=firsts_of(6, seed=8), model=model)
    assert report.passed
    assert {row.case.partition(": ")[0] for row in report.rows if ": " in row.case} == {"encoder", "step"}
    whole = {row.case for row in report.rows if ": " not in row.case} - {"samples of this run"}
    assert len(whole) == bundle.manifest["parity"]["cases"] > 3
    assert {row.name for row in report.rows if row.case == "samples of this run"} == {"tokens", "lengths", "scores"}
    with pytest.raises(InputError, match=r"`samples` lack \['\w+'"):
        verify_bundle(bundle.path, samples={}, model=model)
    nothing = {"first": np.full((2, WIDTH), np.nan, "float32")}
    with pytest.raises(InputError, match=r"Keras itself cannot run .* on `samples`: Keras gives NaN$"):
        verify_bundle(bundle.path, samples=nothing, model=model)


def test_what_feeds_what(exported):
    _, bundle = exported
    feeds = {feed["input"]: (feed["first"], feed["then"]) for feed in bundle.manifest["feeds"]}
    session = onnxruntime.InferenceSession(bundle.path / "step" / "model.onnx")
    assert {each.name for each in session.get_inputs()} == set(feeds)  # with dots, as they are called
    assert feeds.pop("token") == ({"from": "start"}, {"from": "token"})
    assert feeds.pop("position") == ({"from": "position"},) * 2
    assert feeds.pop("context") == ({"from": "encoder output", "name": "context"},) * 2
    empty = {"from": "zeros", "shape": [HEADS, 0, SIZE]}
    assert feeds == {
        each: (empty, {"from": "step output", "name": each.replace("past_key_values", "present")}) for each in PAST
    }
    assert bundle.manifest["start"] == START


def test_caches_are_proven_empty_and_filled(exported):
    cases = {case.name: case for case in verify.load_cases(exported[1].path / "step" / verify.CASES)}
    assert [cases[EMPTY_CACHE].inputs[each].shape[2] for each in PAST] == [0] * len(PAST)
    assert len({case.inputs[PAST[0]].shape[2] for case in cases.values()}) > 3


def of_one_batch(rows):
    """What has a step that takes so many rows only, beside an encoder that takes any."""
    encoder, step, state = recurrent()
    taken = [keras.Input(batch_shape=(rows, *x.shape[1:]), dtype=x.dtype, name=x.name) for x in step.inputs]
    outputs = step(taken)
    logits = keras.ops.reshape(outputs["logits"], (rows, TOKENS))
    step = keras.Model(taken, {**outputs, "logits": logits})
    return greedy(encoder, step, state, start=START, end=END, max_length=LENGTH)


def test_a_step_of_one_batch_is_exported_with_it(tmp_path):
    model, inputs = of_one_batch(4), {"ids": ids_of(9)["ids"][[7, 0, 8, 1]]}
    bundle = export_model(model, tmp_path / "bundle")
    assert bundle.manifest["inputs"] == [{"name": "ids", "dtype": "int32", "shape": [4, "ids_length"]}]
    assert {spec["name"]: spec["shape"][0] for spec in bundle.manifest["outputs"]} == dict.fromkeys(ANSWER, 4)
    free = greedy(*recurrent(), start=START, end=END, max_length=LENGTH)
    found, expected = bundle.generate(inputs), arrays(free(inputs))
    assert len(set(expected["lengths"].tolist())) > 2  # so that rows would leave
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, err_msg=name)


# ------------------------------------------------------------- what is refused


def plain():
    x = keras.Input((3,), name="x")
    return keras.Model(x, keras.layers.Dense(2)(x), name="plain")


def with_a_layer_behind():
    inner = greedy(*recurrent(), start=START, end=END, max_length=2)
    return keras.Model(inner.input, keras.layers.Reshape((-1, 1))(inner.output["tokens"]), name="around")


def within_another_model():
    inner = greedy(*recurrent(), start=START, end=END, max_length=2)
    ids = keras.Input((None,), dtype="int32", name="ids")
    return keras.Model(ids, inner({"ids": ids})["tokens"] + 1, name="around")


def a_beam():
    return beam(*recurrent(), start=START, end=END, max_length=2)


@pytest.mark.parametrize(
    ("build", "options", "error", "said"),
    [
        (plain, {}, UnsupportedModelError, "what `keras_attn.decoding.greedy` makes, .* `plain`, another model"),
        (a_beam, {}, UnsupportedModelError, "a beam search, whose loop is in one file only"),
        (with_a_layer_behind, {}, UnsupportedModelError, "`around`, another model"),
        (within_another_model, {}, UnsupportedModelError, "`around`, another model"),
        (plain, {"static_axes": {"batch": 1}}, InputError, "`in_steps` makes two bundles, and `static_axes` is for"),
        (plain, {"report": True}, InputError, "`in_steps` makes two bundles, and `report` is for one"),
    ],
)
def test_what_is_refused(build, options, error, said, tmp_path):
    model = build()
    with pytest.raises(error, match=said):
        export_model(model, tmp_path / "bundle", in_steps=True, **options)
    assert names(tmp_path) == []


def test_answers_that_differ_leave_nothing(tmp_path, monkeypatch):
    """What the loop gives is compared, beside the parts: here it takes one token for another."""
    right = Bundle.generate

    def wrong(self, inputs, **options):
        found = right(self, inputs, **options)
        return found | {"tokens": found["tokens"] + 1}

    monkeypatch.setattr(Bundle, "generate", wrong)
    model = greedy(*recurrent(), start=START, end=END, max_length=2)
    with pytest.raises(ParityError, match="output `tokens` differs in"):
        export_model(model, tmp_path / "bundle", in_steps=True)
    assert names(tmp_path) == []


# ---------------------------------------------- what is known before an export


def layer_of(model):
    return model.layers[-1]


def test_a_step_gets_samples_only_for_what_cannot_be_drawn():
    first = {"first": np.ones((3, 4), "float32")}
    samples = step_samples(layer_of(greedy(*growing(), start=START, max_length=2)), first)
    assert {name: array.tolist() for name, array in samples.items()} == {"position": [0, 1, 0]}
    assert step_samples(layer_of(greedy(*attending(), start=START, max_length=4)), ids_of(3)) is None


def counting_state():
    """A step that counts, in a state of integers."""
    ids, token = keras.Input((None,), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    encoder = keras.Model(ids, {"count": keras.ops.sum(ids, axis=1)})
    count = keras.Input((), dtype="int32", name="count")
    logits = keras.layers.Embedding(3, 3)(token) + keras.ops.expand_dims(keras.ops.cast(count, "float32"), 1)
    return encoder, keras.Model([token, count], {"logits": logits, "next": count + 10}), {"next": "count"}


def test_integers_of_a_state_are_those_of_some_steps():
    layer = layer_of(greedy(*counting_state(), start=START, max_length=8))
    samples = step_samples(layer, {"ids": np.array([[1, 2], [3, 4]], "int32")})
    assert {name: array.tolist() for name, array in samples.items()} == {"count": [23, 27]}


def test_what_the_encoder_gives_goes_before_what_it_takes():
    x = keras.Input((4,), name="x")
    encoder = keras.Model({"x": x}, {"x": 2 * x, "last": keras.ops.cast(x[:, 0], "int32")})
    token, taken = keras.Input((), dtype="int32", name="token"), keras.Input((4,), name="x")
    step = keras.Model([token, taken], {"logits": taken + keras.layers.Embedding(3, 4)(token)})
    layer = layer_of(greedy(encoder, step, {}, start="last", max_length=2))
    feeds = {feed["input"]: feed["first"] for feed in feeds_of(layer)}
    assert feeds["x"] == {"from": "encoder output", "name": "x_output"}  # a file has no two tensors of one name
    assert start_of(layer) == {"from": "encoder output", "name": "last"}
    json.dumps(feeds)
