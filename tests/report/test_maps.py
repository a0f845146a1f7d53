"""What a page holds of attention weights."""

import base64
import gzip

import numpy as np
import pytest
from onnx_bundles import manifest_of

from keras_attn import attention_entropy
from keras_attn_export._report import maps
from keras_attn_export._report.maps import EXACT_ZERO, NOT_A_NUMBER, maps_of, row_entropy
from keras_attn_export._standalone.verify import Case, Spec


def manifest(*shape):
    outputs = Spec("other", "float32", ("batch", 2)), Spec("weights", "float32", shape)
    return manifest_of((), outputs, weights_of={"weights": "attend"})


def case_of(weights, name="base"):
    return Case(name, {}, {"weights": weights, "other": np.zeros((len(weights), 2), "float32")})


def unpacked(text, dtype):
    return np.frombuffer(gzip.decompress(base64.b64decode(text)), dtype)


@pytest.fixture
def weights():
    drawn = np.random.default_rng(0).dirichlet(np.ones(7), size=(3, 2, 5)).astype("float32")
    drawn[..., 5:] = 0
    drawn[1, 0, 2] = 0
    return drawn


def map_of(weights, **options):
    """The one map of a case of weights."""
    ((drawn,), left_out) = maps_of([case_of(weights)], manifest(*"abcde"[: weights.ndim]), {}, **options)
    assert left_out == []
    (held,) = drawn["maps"]
    return held


def test_weights_are_stored_with_four_digits(weights):
    held = map_of(weights)
    assert held["shape"] == held["of"] == [3, 2, 5, 7]
    assert (held["output"], held["layer"]) == ("weights", "attend")
    codes = unpacked(held["weights"], "<u2").reshape(weights.shape)
    assert (codes[..., 5:] == EXACT_ZERO).all()
    shown = [f"{code / 10_000:.4f}" for code in codes[..., :5][weights[..., :5] > 0]]
    assert shown == [f"{weight:.4f}" for weight in weights[..., :5][weights[..., :5] > 0]]


@pytest.mark.parametrize(
    ("row", "scale", "codes"),
    [
        ([1e-9, 0, np.nan, 1], 10_000, [0, EXACT_ZERO, NOT_A_NUMBER, 10_000]),
        ([70.0, 0.5, -1, 0], 936, [65_520, 468, 0, EXACT_ZERO]),  # of a normalizer of a user's own
    ],
)
def test_zero_and_nan_have_codes_of_their_own(row, scale, codes):
    held = map_of(np.array([[row]], "float32"))
    assert held["scale"] == scale
    assert unpacked(held["weights"], "<u2").tolist() == codes


def test_entropy_equals_that_of_the_layers(weights):
    np.testing.assert_allclose(row_entropy(weights), attention_entropy(weights), atol=1e-6)
    assert row_entropy(np.zeros((1, 4))) == 0


@pytest.mark.parametrize(
    ("shape", "four"),
    [((3, 7), [3, 1, 1, 7]), ((2, 3, 4, 5, 7), [6, 4, 5, 7])],
)
def test_weights_of_any_rank_are_stored_with_four_axes(shape, four):
    assert map_of(np.ones(shape, "float32"), examples=9)["of"] == four


def test_large_weights_are_cut():
    held = map_of(np.ones((9, 20, 200, 150), "float32"), examples=1)
    assert (held["shape"], held["of"]) == ([1, 8, 128, 128], [9, 20, 200, 150])
    # the entropy is that of the whole row, of which a part is shown
    np.testing.assert_allclose(unpacked(held["entropy"], "<f4"), np.log(150), rtol=1e-6)


@pytest.mark.parametrize(("room", "shape"), [(70, [1, 1, 5, 7]), (8, [1, 1, 2, 2]), (1, None)])
def test_weights_of_own_inputs_are_cut_until_there_is_room(weights, monkeypatch, room, shape):
    monkeypatch.setattr(maps, "MOST_NUMBERS", room)
    monkeypatch.setattr(maps, "MOST_POSITIONS", 16)
    drawn, left_out = maps_of([case_of(weights, "your inputs")], manifest("batch", 2, "queries", "keys"), {})
    assert left_out == ([] if shape else ["your inputs"])
    assert [each["maps"][0]["shape"] for each in drawn] == ([shape] if shape else [])
    assert all(2 * np.prod(each["maps"][0]["shape"]) <= room for each in drawn)


def test_model_without_weights_has_no_maps():
    outputs = [Spec("weights", "float32", ("b", "q", "k"))]
    assert maps_of([case_of(np.ones((1, 2, 3)))], manifest_of((), outputs), {}) == ([], [])
