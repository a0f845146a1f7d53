"""Signatures of models: names, dtypes and shapes of inputs, names of outputs, and refused inputs."""

import keras
import numpy as np
import pytest
from export_models import (
    OneMapping,
    TwoArguments,
    build_dict_inputs_and_outputs,
    build_input_passed_through,
    build_list_outputs_of_one_layer,
    draw_mapping_samples,
    draw_two_argument_samples,
)
from keras import layers

from keras_attn_export import InputError, UnsupportedModelError
from keras_attn_export._signature.signature import InputSpec, add_input_layer, build_signature

ONES = np.ones((2, 3), "float32")


def list_input_names(signature):
    return [spec.name for spec in signature.inputs]


def build_named_model(*names, **options):
    """Return a model of inputs with these names."""
    inputs = [keras.Input((3,), name=name, **options) for name in names]
    return keras.Model(inputs, keras.ops.concatenate(inputs) if len(inputs) > 1 else layers.Identity()(inputs[0]))


def test_functional_models_have_names_dtypes_and_shapes():
    signature = build_signature(build_dict_inputs_and_outputs(), None)
    assert set(signature.inputs) == {
        InputSpec("queries", "float32", (None, None, 6)),
        InputSpec("keys", "float32", (None, None, 6)),
        InputSpec("values", "float32", (None, None, 5)),
        InputSpec("valid_lens", "int32", (None,)),
    }
    assert set(signature.outputs) == {"context", "weights"}
    assert signature.is_functional
    names = ["past_key_values.0.key", "past_key_values.0.value", "Input-Token"]
    assert list_input_names(build_signature(build_named_model(*names), None)) == names


@pytest.mark.parametrize(
    ("build", "outputs"),
    [
        (build_list_outputs_of_one_layer, {"attention", "attention_1"}),  # a second output of a layer has a number
        (build_input_passed_through, {"x_output", "doubled"}),  # not the name of the input
    ],
)
def test_outputs_without_keys_are_named_by_layers(build, outputs):
    assert set(build_signature(build(), None).outputs) == outputs


def test_nested_structures_have_joined_names():
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    model = keras.Model({"pair": [a, b]}, {"nested": {"sum": a + b, "list": [a - b]}})
    signature = build_signature(model, None)
    assert list_input_names(signature) == ["a", "b"]
    outputs = signature.call({"a": ONES, "b": 3 * ONES})
    assert set(outputs) == {"nested_sum", "nested_list_0"}
    np.testing.assert_array_equal(outputs["nested_list_0"], -2 * ONES)


def test_subclass_inputs_are_arguments_or_keys_of_one_mapping():
    signature = build_signature(TwoArguments(), draw_two_argument_samples())
    dtypes = {"q": "float32", "kv": "float32", "valid_lens": "int64"}
    assert {spec.name: spec.dtype for spec in signature.inputs} == dtypes
    assert set(signature.outputs) == {"logits", "weights"}
    assert not signature.is_functional
    signature = build_signature(OneMapping(), draw_mapping_samples())
    assert list_input_names(signature) == ["left", "right"]
    assert signature.outputs == ("output_0", "output_1")


def test_sequential_without_input_is_built_from_samples():
    model = keras.Sequential([layers.Dense(2, name="out")], name="sequence")
    built_model = add_input_layer(model, {"x": np.ones((4, 3), "float32")})
    signature = build_signature(built_model, None)
    assert signature.inputs == (InputSpec("x", "float32", (None, 3)),)
    assert signature.outputs == ("out",)
    assert built_model.name == "sequence"
    assert build_signature(model, {"x": np.ones((4, 3), "float32")}).inputs == signature.inputs


@pytest.mark.parametrize("samples", [None, {"x": np.ones((1, 3)), "y": np.ones((1, 3))}, np.ones((1, 3))])
def test_sequential_without_input_requires_one_sample(samples):
    model = keras.Sequential([layers.Dense(2)], name="sequence")
    with pytest.raises(InputError, match=r"`sequence` is a Sequential without an Input.*sample_inputs="):
        add_input_layer(model, samples)


SAMPLE = np.ones((1, 2, 3))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (None, r"sample_inputs.*\(q, kv, valid_lens\)"),
        ({"q": SAMPLE, "key": SAMPLE}, "'key'"),
        ({"kv": SAMPLE}, "lacks `q`"),
        ({"q": np.ones((1, 2)), "kv": SAMPLE}, "Keras itself cannot run"),
    ],
    ids=["none", "unknown", "without the first", "that Keras cannot run"],
)
def test_samples_that_do_not_fit_a_subclass_are_refused(samples, message):
    with pytest.raises(InputError, match=message):
        build_signature(TwoArguments(), samples)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: build_named_model("my input"), "my input.*name='my_input'"),
        (lambda: build_named_model("2nd"), "`2nd` .* name='input_2nd'"),
        (lambda: build_named_model("class"), "`class` .* name='input_class'"),
        (lambda: build_named_model("A", "a"), "Input names `A` and `a` collide"),
        (lambda: build_named_model("past.0.key", "past_0-key"), "Input names `past.0.key` and `past_0-key` collide"),
        (lambda: build_named_model("x", ragged=True), "`x` is ragged"),
        (lambda: build_named_model("x", sparse=True), "`x` is sparse"),
        (lambda: build_named_model("x", dtype="bfloat16"), "`x` is bfloat16, which NumPy does not have"),
    ],
)
def test_inputs_that_a_file_cannot_have_are_refused_by_name(build, message):
    model = build()
    with pytest.raises(UnsupportedModelError, match=message):
        build_signature(model, None)


def build_unnamed_model():
    inputs = {"a": keras.Input((3,), name="a"), "pair": [keras.Input((3,)), keras.Input((3,))]}
    return keras.Model(inputs, inputs["a"] + inputs["pair"][0] - inputs["pair"][1])


@pytest.mark.parametrize("build", [build_unnamed_model, lambda: keras.Sequential([keras.Input((3,)), layers.Dense(2)])])
def test_unnamed_inputs_have_the_same_name_after_loading(build, tmp_path):
    model = build()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert build_signature(model, None).inputs == build_signature(loaded, None).inputs


class OptionalArgument(keras.Model):
    def call(self, x, y=None):
        return {"doubled": x * 2, "y": y, "pair": [None, x]}


def test_none_in_arguments_and_outputs_is_omitted():
    signature = build_signature(OptionalArgument(), {"x": ONES, "y": None})
    assert list_input_names(signature) == ["x"]
    assert list(signature.run({"x": ONES})) == ["doubled", "pair_1"]
