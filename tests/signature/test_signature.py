"""Names, dtypes and shapes of what goes into a model and comes out of it."""

import keras
import numpy as np
import pytest
from export_models import (
    OneMapping,
    TwoArguments,
    dict_inputs_and_outputs,
    input_passed_through,
    list_outputs_of_one_layer,
    mapping_samples,
    two_argument_samples,
)
from keras import layers

from keras_attn_export import InputError, UnsupportedModelError
from keras_attn_export._signature.signature import InputSpec, add_input_layer, build_signature

ONES = np.ones((2, 3), "float32")


def names(signature):
    return [spec.name for spec in signature.inputs]


def named_model(*names, **options):
    inputs = [keras.Input((3,), name=name, **options) for name in names]
    return keras.Model(inputs, keras.ops.concatenate(inputs) if len(inputs) > 1 else layers.Identity()(inputs[0]))


def test_functional_models_have_names_dtypes_and_shapes():
    signature = build_signature(dict_inputs_and_outputs(), None)
    assert set(signature.inputs) == {
        InputSpec("queries", "float32", (None, None, 6)),
        InputSpec("keys", "float32", (None, None, 6)),
        InputSpec("values", "float32", (None, None, 5)),
        InputSpec("valid_lens", "int32", (None,)),
    }
    assert set(signature.outputs) == {"context", "weights"}
    assert signature.is_functional
    past = ["past_key_values.0.key", "past_key_values.0.value", "Input-Token"]
    assert names(build_signature(named_model(*past), None)) == past


@pytest.mark.parametrize(
    ("build", "outputs"),
    [
        (list_outputs_of_one_layer, {"attention", "attention_1"}),  # named by their layers, once each
        (input_passed_through, {"x_output", "doubled"}),  # never by an input's name
    ],
)
def test_outputs_without_keys_are_named_by_layers(build, outputs):
    assert set(build_signature(build(), None).outputs) == outputs


def test_nested_structures_have_joined_names():
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    model = keras.Model({"pair": [a, b]}, {"nested": {"sum": a + b, "more": [a - b]}})
    signature = build_signature(model, None)
    assert names(signature) == ["a", "b"]
    outputs = signature.call({"a": ONES, "b": 3 * ONES})
    assert set(outputs) == {"nested_sum", "nested_more_0"}
    np.testing.assert_array_equal(outputs["nested_more_0"], -2 * ONES)


def test_subclass_inputs_are_arguments_or_keys_of_one_mapping():
    signature = build_signature(TwoArguments(), two_argument_samples())
    dtypes = {"q": "float32", "kv": "float32", "valid_lens": "int64"}
    assert {spec.name: spec.dtype for spec in signature.inputs} == dtypes
    assert set(signature.outputs) == {"logits", "weights"}
    assert not signature.is_functional
    signature = build_signature(OneMapping(), mapping_samples())
    assert names(signature) == ["left", "right"]
    assert signature.outputs == ("output_0", "output_1")


def test_sequential_without_input_is_built_from_samples():
    model = keras.Sequential([layers.Dense(2, name="out")], name="plain")
    built = add_input_layer(model, {"x": np.ones((4, 3), "float32")})
    signature = build_signature(built, None)
    assert signature.inputs == (InputSpec("x", "float32", (None, 3)),)
    assert signature.outputs == ("out",)
    assert built.name == "plain"
    assert build_signature(model, {"x": np.ones((4, 3), "float32")}).inputs == signature.inputs


@pytest.mark.parametrize("samples", [None, {"x": np.ones((1, 3)), "y": np.ones((1, 3))}, np.ones((1, 3))])
def test_sequential_without_input_asks_for_one_sample(samples):
    model = keras.Sequential([layers.Dense(2)], name="plain")
    with pytest.raises(InputError, match=r"`plain` is a Sequential without an Input.*sample_inputs="):
        add_input_layer(model, samples)


SAMPLE = np.ones((1, 2, 3))


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (None, r"sample_inputs.*\(q, kv, valid_lens\)"),
        ({"q": SAMPLE, "key": SAMPLE}, "'key'"),
        ({"kv": SAMPLE}, "lacks `q`"),
        ({"q": np.ones((1, 2)), "kv": SAMPLE}, "Keras itself cannot run"),
    ],
    ids=["none", "unknown", "without the first", "that Keras cannot run"],
)
def test_samples_that_do_not_fit_a_subclass_are_refused(samples, said):
    with pytest.raises(InputError, match=said):
        build_signature(TwoArguments(), samples)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: named_model("my input"), "my input.*name='my_input'"),
        (lambda: named_model("2nd"), "`2nd` .* name='input_2nd'"),
        (lambda: named_model("class"), "`class` .* name='input_class'"),
        (lambda: named_model("A", "a"), "Input names `A` and `a` collide"),
        (lambda: named_model("past.0.key", "past_0-key"), "Input names `past.0.key` and `past_0-key` collide"),
        (lambda: named_model("x", ragged=True), "`x` is ragged"),
        (lambda: named_model("x", sparse=True), "`x` is sparse"),
        (lambda: named_model("x", dtype="bfloat16"), "`x` is bfloat16, which NumPy does not have"),
    ],
)
def test_inputs_that_no_file_can_have_are_refused_by_name(build, message):
    model = build()
    with pytest.raises(UnsupportedModelError, match=message):
        build_signature(model, None)


def unnamed_inputs():
    inputs = {"a": keras.Input((3,), name="a"), "more": [keras.Input((3,)), keras.Input((3,))]}
    return keras.Model(inputs, inputs["a"] + inputs["more"][0] - inputs["more"][1])


@pytest.mark.parametrize("build", [unnamed_inputs, lambda: keras.Sequential([keras.Input((3,)), layers.Dense(2)])])
def test_unnamed_inputs_have_one_name_in_memory_and_in_a_file(build, tmp_path):
    model = build()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert build_signature(model, None).inputs == build_signature(loaded, None).inputs


class OptionalArgument(keras.Model):
    def call(self, x, y=None):
        return {"doubled": x * 2, "y": y, "pair": [None, x]}


def test_none_in_arguments_and_outputs_is_left_out():
    signature = build_signature(OptionalArgument(), {"x": ONES, "y": None})
    assert names(signature) == ["x"]
    assert list(signature.run({"x": ONES})) == ["doubled", "pair_1"]
