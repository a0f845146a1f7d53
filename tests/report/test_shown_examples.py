"""Examples of a report: texts of inputs and predictions."""

import numpy as np
import pytest
from handwritten_bundles import build_manifest

from keras_attn_export._format.manifest import Spec
from keras_attn_export._format.names import Case
from keras_attn_export._report.encoding import format_number
from keras_attn_export._report.examples import MAX_NUMBERS, build_example, find_probability_outputs, format_numbers

VOCABULARY = ["", "the", "cat", "sat"]
SPECIES = ["setosa", "versicolor", "virginica"]


def make_example(inputs, outputs, labels, *, index=0, probabilities=("scores",), **entries):
    """Return an example of arrays by name; their first axes are "batch" and "time"."""

    def specs(arrays):
        sizes = {0: "batch", 1: "time"}
        shapes = [tuple(sizes.get(axis, size) for axis, size in enumerate(array.shape)) for array in arrays.values()]
        return [Spec(name, str(arrays[name].dtype), shape) for name, shape in zip(arrays, shapes, strict=True)]

    manifest = build_manifest(specs(inputs), specs(outputs), **entries)
    return build_example(index, Case("base", inputs, outputs), manifest, labels, probabilities)


def make_prediction(scores, labels=SPECIES, **options):
    (output,) = make_example({}, {"scores": np.asarray(scores, "float32")}, {"scores": labels}, **options).predictions
    return output


def test_inputs_are_shown_with_all_digits():
    inputs = {
        "x": np.array([[5.1, -2, np.nan, np.inf]], "float32"),
        "flag": np.array([True]),
        "text": np.array(["the <b>cat</b>"], object),
        "image": np.arange(6, dtype="uint8").reshape(1, 2, 3),
    }
    assert dict(make_example(inputs, {}, {}).inputs) == {
        "x": "5.1 -2 NaN Infinity",
        "flag": "true",
        "text": "the <b>cat</b>",
        "image": "2 \N{MULTIPLICATION SIGN} 3: 0 1 2 3 4 5",
    }


def test_texts_of_ids_are_cut_at_their_length():
    inputs = {"tokens": np.array([[1, 2, 3, 3], [2, 7, 1, -1]]), "lens": np.array([2, 9])}
    options = {"labels": {"tokens": VOCABULARY}, "counts": {"lens": "time"}}
    outputs = {"y": np.zeros((2, 1), "float32")}
    first, second = (make_example(inputs, outputs, index=index, **options) for index in range(2))
    assert first.inputs == (("tokens", "the cat"), ("lens", "2"))
    assert second.inputs[0] == ("tokens", "cat 7 the -1")  # ids without a label
    assert first.labelled_axes == (("time", ["the", "cat", "sat", "sat"]),)


def test_best_classes_have_their_probabilities():
    output = make_prediction([[0.1, 0.65, 0.25]])
    assert (output.text, output.has_words, output.is_sequence) == ("versicolor", True, False)
    assert output.has_probabilities is True
    assert output.class_rows == (("versicolor", "0.65"), ("virginica", "0.25"), ("setosa", "0.1"))


@pytest.mark.parametrize("scores", [[np.nan, 1, 0], [1, 0, np.nan], [np.nan] * 3])
def test_nan_has_no_label(scores):
    output = make_prediction([scores])
    assert (output.text, output.class_rows) == ("NaN", ())


def test_sequence_has_the_best_classes_of_each_position():
    output = make_prediction([[[0.5, 0.3, 0.2], [np.nan, 1, 0], [0, 0, 1]]])
    assert (output.text, output.is_sequence) == ("setosa NaN virginica", True)
    assert output.class_rows == (
        ("0", "setosa", "0.5", "versicolor", "0.3", "virginica", "0.2"),
        ("1", "NaN"),
        ("2", "virginica", "1", "setosa", "0", "versicolor", "0"),
    )


def test_outputs_of_ids_strings_and_numbers_are_predictions():
    outputs = {
        "tokens": np.array([[1, 2, 0]]),
        "class": np.array(["dog"], object),
        "y": np.array([[1 / 3, np.nan]], "float32"),
        "weights": np.ones((1, 2), "float32"),
    }
    labels, weights_of = {"tokens": VOCABULARY}, {"weights": "attend"}
    predictions = make_example({}, outputs, labels, weights_of=weights_of).predictions
    assert [(output.name, output.text, output.has_words) for output in predictions] == [
        ("tokens", "the cat", True),
        ("class", "dog", True),
        ("y", "0.333333 NaN", False),
    ]


def test_array_without_batch_axis_is_shown_entirely():
    manifest = build_manifest([Spec("table", "float32", (2, 2))], [Spec("y", "float32", ("batch", 1))])
    case = Case("base", {"table": np.eye(2, dtype="float32")}, {"y": np.zeros((3, 1), "float32")})
    assert build_example(1, case, manifest, {}, ()).inputs == (("table", "2 \N{MULTIPLICATION SIGN} 2: 1 0 0 1"),)


def test_positions_are_the_first_axis_of_arrays_without_batch():
    inputs = Spec("ids", "int32", (3,)), Spec("x", "float32", ("batch", 2)), Spec("few", "int32", ("few",))
    outputs = Spec("y", "float32", ("batch", 2)), Spec("scores", "float32", (2, 4))
    arrays = {"ids": np.array([1, 2, 3]), "x": np.zeros((2, 2), "float32"), "few": np.array([2])}
    results = {"y": np.zeros((2, 2), "float32"), "scores": np.eye(4, dtype="float32")[1:3]}
    case, labels = Case("base", arrays, results), dict.fromkeys(("ids", "few", "scores"), VOCABULARY)
    second = build_example(1, case, build_manifest(inputs, outputs), labels, ())
    assert second.inputs == (("ids", "the cat sat"), ("x", "0 0"), ("few", "cat"))
    assert second.labelled_axes == ((3, ["the", "cat", "sat"]), ("few", ["cat"]), (2, ["the", "cat"]))
    assert [output.is_sequence for output in second.predictions if output.class_rows] == [True]


@pytest.mark.parametrize(
    ("values", "are_probabilities"),
    [
        ([[[0.2, 0.8]], [[1, 0]]], True),
        ([[[0.2, np.nan]], [[1.0005, 0]]], True),  # a float16 softmax, and NaN
        ([[[0.2, 0.8]], [[1.2, 0]]], False),
        ([[[0.2, 0.8]], [[-0.1, 0]]], False),
        ([[[0, 0]], [[0, 0]]], False),  # logits before training
        ([[[np.nan, np.nan]]], False),
    ],
)
def test_values_of_all_cases_decide_on_probabilities(values, are_probabilities):
    manifest = build_manifest([], [Spec("y", "float32", ("batch", 2)), Spec("unlabelled", "float32", ("batch", 2))])
    cases = [Case("", {}, {"y": np.array(array, "float32")}) for array in values]
    assert find_probability_outputs(manifest, {"y": ["no", "yes"]}, cases) == ["y"] * are_probabilities


def test_many_numbers_are_cut():
    text = format_numbers(np.arange(100))
    assert text.startswith("0 1 2 ")
    assert text.endswith(f" {MAX_NUMBERS - 1} … (100 numbers)")


@pytest.mark.parametrize(
    ("value", "text"), [(np.float32(0.1), "0.1"), (np.float64(2.0), "2"), (-np.inf, "-Infinity"), (np.int64(-7), "-7")]
)
def test_numbers_are_written_as_in_javascript(value, text):
    assert format_number(value) == text
