"""What ids are called, beside maps and above them."""

from dataclasses import replace

import numpy as np
import pytest
from onnx_bundles import manifest_of

from keras_attn_export import InputError
from keras_attn_export._report.labels import caption_of, checked_labels, labels_along
from keras_attn_export._standalone.verify import Case, Spec

MANIFEST = manifest_of(
    [
        Spec("tokens", "int32", ("batch", "tokens_length")),
        Spec("lens", "int32", ("batch",)),
        Spec("country", "int32", ("batch",)),
        Spec("single", "int32", ()),
    ],
    [Spec("weights", "float32", ("batch", 3, "tokens_length")), Spec("answer", "float32", ("batch", 3, 2))],
    counts={"lens": "tokens_length"},
    weights_of={"weights": "attend"},
)
LABELS = {"tokens": ["", "the", "cat"], "country": ["at", "de"], "answer": "-+"}


@pytest.fixture
def case():
    inputs = {"tokens": np.array([[1, 2, 0, 0], [2, 7, 1, -1]]), "lens": np.array([2, 9]), "country": np.array([1, 0])}
    scores = np.array([[[1, 2], [3, 0], [0, 1]], [[5, 1], [4, 1], [1, 9]]], "float32")
    return Case("base", inputs, {"answer": scores, "weights": np.zeros((2, 3, 4), "float32")})


def test_labels_follow_the_axis_of_their_tensor(case):
    labels = checked_labels(MANIFEST, LABELS)
    assert labels_along("tokens_length", case, MANIFEST, labels, 2, 4) == [
        ["the", "cat", "", ""],
        ["cat", "7", "the", "-1"],  # ids without a label are shown as they are
    ]
    assert labels_along(3, case, MANIFEST, labels, 1, 2) == [["+", "-"]]
    assert labels_along("other", case, MANIFEST, labels, 2, 4) is None
    assert labels_along("tokens_length", case, MANIFEST, {}, 2, 4) is None


def test_axis_of_equal_size_has_no_labels_if_ambiguous(case):
    shapes = {"tokens": ("batch", 4), "answer": ("batch", 4, 2), "weights": ("batch", 3, 4)}
    inputs, outputs = (
        [replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in side]
        for side in (MANIFEST.inputs, MANIFEST.outputs)
    )
    sides = replace(MANIFEST, inputs=tuple(inputs), outputs=tuple(outputs))
    assert labels_along(4, case, sides, {"tokens": LABELS["tokens"]}, 2, 4)[0] == ["the", "cat", "", ""]
    assert labels_along(4, case, sides, checked_labels(sides, LABELS), 2, 4) is None


def test_caption_omits_padding(case):
    labels = checked_labels(MANIFEST, LABELS)
    assert caption_of(case, MANIFEST, labels, 0) == [["tokens", "the cat"], ["country", "de"], ["answer", "+-+"]]
    assert caption_of(case, MANIFEST, labels, 1)[0] == ["tokens", "cat 7 the -1"]
    assert caption_of(case, MANIFEST, {}, 0) == []


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["a"], "must be a mapping"),
        ({"toks": ["a"]}, r"must name inputs or outputs of the model, \['tokens', .*Received: 'toks'"),
        ({"tokens": 3}, "must be strings, one for each id. Received: int"),
        ({"tokens": ["a", 3]}, "must be strings"),
        ({"answer": ["a", "b", "c"]}, "as many scores as there are labels. Received: 3 labels for float32"),
        ({"single": "ab"}, r"Received: 2 labels for int32 of shape \(\)"),
    ],
)
def test_wrong_labels_are_refused(labels, said):
    with pytest.raises(InputError, match=said):
        checked_labels(MANIFEST, labels)
