"""Attention weights of a report: rounding, cutting and labels."""

import base64
import gzip
import json

import numpy as np
import pytest
from handwritten_bundles import build_manifest

from keras_attn_export._format.manifest import Spec
from keras_attn_export._format.names import Case
from keras_attn_export._report import attention_maps
from keras_attn_export._report.attention_maps import MAX_HEADS, MAX_POSITIONS
from keras_attn_export._report.examples import Example, LabelledAxis


def build_maps(weights, *labelled_axes, shape=None, count=1):
    """Return a list with one attention map for each example; `labelled_axes` are axes with their words."""
    outputs = Spec("other", "float32", ("batch", 2)), Spec("weights", "float32", shape or (*"abcdef"[: weights.ndim],))
    case = Case("base", {}, {"weights": weights, "other": np.zeros((len(weights), 2), "float32")})
    manifest = build_manifest((), outputs, weights_of={"weights": "attend"})
    axes = tuple(LabelledAxis(*axis) for axis in labelled_axes)
    return attention_maps.build_attention_maps(case, manifest, count * [Example((), (), axes)])


def decode_weights(attention_map):
    return json.loads(gzip.decompress(base64.b64decode(attention_map["weights"])))


def test_weights_are_rounded_and_exact_zeros_and_nan_stay_distinct():
    ((attention_map,),) = build_maps(np.array([[[[0.12345, 0, 1e-9, np.nan, 1]]]], "float32"))
    assert decode_weights(attention_map) == [0.123, 0, 1e-9, None, 1.0]
    assert (attention_map["output"], attention_map["layer"]) == ("weights", "attend")


@pytest.mark.parametrize(
    ("shape", "drawn_shape"), [((3, 7), [1, 1, 7]), ((3, 5, 7), [1, 5, 7]), ((2, 3, 4, 5, 7), [12, 5, 7])]
)
def test_weights_of_any_rank_have_heads_queries_and_keys(shape, drawn_shape):
    weights = np.random.default_rng(0).random(shape, "float32")
    first, second = (decode_weights(attention_map) for (attention_map,) in build_maps(weights, count=2))
    np.testing.assert_allclose(first, weights[0].ravel(), rtol=5e-3)
    np.testing.assert_allclose(second, weights[1].ravel(), rtol=5e-3)
    ((attention_map,),) = build_maps(weights)
    assert attention_map["shape"] == attention_map["of"] == drawn_shape


def test_large_weights_are_cut():
    ((attention_map,),) = build_maps(np.ones((1, 20, 200, 150), "float32"))
    assert (attention_map["shape"], attention_map["of"]) == ([MAX_HEADS, MAX_POSITIONS, MAX_POSITIONS], [20, 200, 150])
    assert len(decode_weights(attention_map)) == MAX_HEADS * MAX_POSITIONS**2


@pytest.mark.parametrize(
    ("limit", "shapes"), [(70, 2 * [[1, 5, 7]]), (35, [[1, 5, 7]]), (16, [[1, 4, 4]]), (3, 2 * [[1, 1, 1]])]
)
def test_examples_and_positions_fit_the_limit_of_weights(monkeypatch, limit, shapes):
    monkeypatch.setattr(attention_maps, "MAX_WEIGHTS", limit)
    monkeypatch.setattr(attention_maps, "MAX_POSITIONS", 8)
    assert [attention_map["shape"] for (attention_map,) in build_maps(np.ones((3, 5, 7), "float32"), count=2)] == shapes


def test_labels_are_those_of_the_sequence_with_the_axis():
    letters = ["a", "b", "c"]
    sequences = ("keys", letters), ("queries", ["x", "y"]), ("keys", ["d", "e", "f"]), (3, letters), (2, ["z", "z"])
    for queries, keys, expected in (
        ("queries", "keys", (["x", "y"], letters)),
        (2, "others", (["z", "z"], None)),
        ("others", 3, (None, letters)),
    ):
        ((attention_map,),) = build_maps(np.ones((1, 2, 3), "float32"), *sequences, shape=("batch", queries, keys))
        assert (attention_map["queries"], attention_map["keys"]) == expected
    ((attention_map,),) = build_maps(np.ones((1, 2, 3), "float32"), (3, letters), (3, letters), shape=("batch", 2, 3))
    assert attention_map["keys"] is None  # two axes may have one static size by chance
