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


def maps_of(weights, *labelled, shape=None, count=1):
    """Return the maps of weights: for each example, a list of one map. `labelled` are axes with their words."""
    outputs = Spec("other", "float32", ("batch", 2)), Spec("weights", "float32", shape or (*"abcdef"[: weights.ndim],))
    case = Case("base", {}, {"weights": weights, "other": np.zeros((len(weights), 2), "float32")})
    manifest = build_manifest((), outputs, weights_of={"weights": "attend"})
    axes = tuple(LabelledAxis(*axis) for axis in labelled)
    return attention_maps.build_attention_maps(case, manifest, count * [Example((), (), axes)])


def weights_in(drawn):
    return json.loads(gzip.decompress(base64.b64decode(drawn["weights"])))


def test_weights_are_rounded_and_exact_zeros_and_nan_stay_distinct():
    ((drawn,),) = maps_of(np.array([[[[0.12345, 0, 1e-9, np.nan, 1]]]], "float32"))
    assert weights_in(drawn) == [0.123, 0, 1e-9, None, 1.0]
    assert (drawn["output"], drawn["layer"]) == ("weights", "attend")


@pytest.mark.parametrize(
    ("shape", "drawn_shape"), [((3, 7), [1, 1, 7]), ((3, 5, 7), [1, 5, 7]), ((2, 3, 4, 5, 7), [12, 5, 7])]
)
def test_weights_of_any_rank_have_heads_queries_and_keys(shape, drawn_shape):
    weights = np.random.default_rng(0).random(shape, "float32")
    first, second = (weights_in(drawn) for (drawn,) in maps_of(weights, count=2))
    np.testing.assert_allclose(first, weights[0].ravel(), rtol=5e-3)
    np.testing.assert_allclose(second, weights[1].ravel(), rtol=5e-3)
    ((drawn,),) = maps_of(weights)
    assert drawn["shape"] == drawn["of"] == drawn_shape


def test_large_weights_are_cut():
    ((drawn,),) = maps_of(np.ones((1, 20, 200, 150), "float32"))
    assert (drawn["shape"], drawn["of"]) == ([MAX_HEADS, MAX_POSITIONS, MAX_POSITIONS], [20, 200, 150])
    assert len(weights_in(drawn)) == MAX_HEADS * MAX_POSITIONS**2


@pytest.mark.parametrize(
    ("limit", "shapes"), [(70, 2 * [[1, 5, 7]]), (35, [[1, 5, 7]]), (16, [[1, 4, 4]]), (3, 2 * [[1, 1, 1]])]
)
def test_examples_and_positions_fit_the_limit_of_weights(monkeypatch, limit, shapes):
    monkeypatch.setattr(attention_maps, "MAX_WEIGHTS", limit)
    monkeypatch.setattr(attention_maps, "MAX_POSITIONS", 8)
    assert [drawn["shape"] for (drawn,) in maps_of(np.ones((3, 5, 7), "float32"), count=2)] == shapes


def test_labels_are_those_of_the_sequence_with_the_axis():
    letters = ["a", "b", "c"]
    sequences = ("keys", letters), ("queries", ["x", "y"]), ("keys", ["d", "e", "f"]), (3, letters), (2, ["z", "z"])
    for queries, keys, expected in (
        ("queries", "keys", (["x", "y"], letters)),
        (2, "others", (["z", "z"], None)),
        ("others", 3, (None, letters)),
    ):
        ((drawn,),) = maps_of(np.ones((1, 2, 3), "float32"), *sequences, shape=("batch", queries, keys))
        assert (drawn["queries"], drawn["keys"]) == expected
    ((drawn,),) = maps_of(np.ones((1, 2, 3), "float32"), (3, letters), (3, letters), shape=("batch", 2, 3))
    assert drawn["keys"] is None  # two axes may have one static size by chance
