"""Pictures of attention weights: their parts, the look of what is masked, and the tokens on the axes."""

import io

import numpy as np
import pytest
from keras import ops
from matplotlib import image

from keras_attn.callbacks._inputs import axis_tokens, tokens_of
from keras_attn.callbacks._pictures import TOKENS, picture, weights_figure

RANDOM = np.random.default_rng(3)


def drawn(weights, title="", **options):
    return picture(weights, title, **{"max_examples": 4, "max_heads": 8, "queries": None, "keys": None, **options})


def pixels_of(axis, figure, pixels):
    """What of a picture is within the axes."""
    box = axis.get_window_extent()
    height = pixels.shape[0]
    return pixels[round(height - box.y1) + 2 : round(height - box.y0) - 2, round(box.x0) + 2 : round(box.x1) - 2, :3]


def test_masked_keys_are_grey_and_others_are_not():
    weights = np.full((1, 2, 3, 4), 1 / 3, "float32")
    weights[..., 3] = 0
    weights[0, 1, 0, 0] = np.nan
    png = drawn(weights)
    figure = weights_figure(weights, "", max_examples=4, max_heads=8, queries=None, keys=None)
    pixels = image.imread(io.BytesIO(png))
    assert pixels.shape == (*(round(100 * size) for size in figure.get_size_inches()[::-1]), 4)
    first, second, _ = figure.axes
    cells = pixels_of(first, figure, pixels)
    width = cells.shape[1]
    masked, taken = cells[:, -width // 4 + 3 :], cells[:, : 3 * width // 4 - 3]
    assert (np.ptp(masked, axis=-1) < 0.01).all()
    assert len(np.unique(masked.round(1))) > 1, "no stripes"
    assert (taken == taken[0, 0]).all()
    assert taken[0, 0, 0] > taken[0, 0, 1] + 0.2, "not red"
    assert (pixels_of(second, figure, pixels)[5, 5] == 0).all(), "what is no number is black"


def test_a_grid_of_examples_and_heads_with_tokens():
    weights = RANDOM.random((5, 3, 2, 4)).astype("float32")
    queries = [[f"q{index}{step}" for step in range(2)] for index in range(5)]
    keys = [[rf"k{index}$\{step}$" for step in range(4)] for index in range(5)]
    figure = weights_figure(weights, "a/b", max_examples=2, max_heads=2, queries=queries, keys=keys)
    *maps, _ = figure.axes
    assert [axis.get_title() for axis in maps] == [f"example {e}, head {h}" for e in range(2) for h in range(2)]
    for number, axis in enumerate(maps):
        example, head = divmod(number, 2)
        np.testing.assert_array_equal(axis.images[0].get_array(), weights[example, head])
        assert axis.images[0].get_clim() == (0, weights[:2].max())  # of what is shown
        assert [text.get_text() for text in axis.get_xticklabels()] == keys[example]
        assert [text.get_text() for text in axis.get_yticklabels()] == (queries[example] if head == 0 else [])
    above, below = (maps[number].get_position() for number in (0, 2))
    assert 0 < below.y0 < below.y1 < above.y0 - TOKENS / figure.get_size_inches()[1]  # with room for the keys
    assert drawn(weights, queries=queries, keys=keys)  # dollars begin no formula


def test_examples_side_by_side_have_their_own_tokens():
    tokens = [[f"{index}{step}" for step in range(3)] for index in range(6)]
    figure = weights_figure(np.ones((6, 3, 3)), "", max_examples=6, max_heads=1, queries=tokens, keys=tokens)
    maps = [axis for axis in figure.axes[:-1] if axis.axison]
    assert [axis.get_title() for axis in maps] == [f"example {index}" for index in range(6)]
    for axis, own in zip(maps, tokens, strict=True):
        assert [text.get_text() for text in axis.get_yticklabels()] == own


def test_nothing_but_zeros_and_long_sequences_are_drawn():
    assert drawn(np.zeros((1, 3, 3), "float32"))
    long = [[str(step) for step in range(300)]]
    figure = weights_figure(np.ones((1, 2, 300)), "", max_examples=1, max_heads=1, queries=None, keys=long)
    assert len(figure.axes[0].get_xticks()) <= 8


def test_tokens_are_looked_up_and_shortened():
    ids = ops.convert_to_tensor([[1, 2, 7], [3, 0, 0]])
    vocabulary = ["", "the", "a\nb", "unpronounceable"]
    expected = [["the", "a\\nb", "7"], ["unpronounce…", "", ""]]
    assert tokens_of({"words": ids}, {"words": vocabulary}) == {"words": expected}
    assert tokens_of({"0": ids}, {"any": dict(enumerate(vocabulary))}) == {"any": expected}
    with pytest.raises(ValueError, match=r"Received: 'word'. There are: 'words', 'lengths'"):
        tokens_of({"words": ids, "lengths": ids}, {"word": vocabulary})


def test_an_axis_has_the_tokens_of_the_only_input_of_its_length():
    tokens = {"source": [["a", "b"]], "target": [["x", "y"]], "long": [["p", "q", "r"]]}
    assert axis_tokens(1, 3, None, tokens) == [["p", "q", "r"]]
    assert axis_tokens(1, 2, None, tokens) is None  # either
    assert axis_tokens(1, 2, "target", tokens) == [["x", "y"]]
    assert axis_tokens(1, 3, "target", tokens) is None
    assert axis_tokens(2, 3, None, tokens) is None  # as many examples as weights
