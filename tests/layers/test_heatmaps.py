"""Heat maps: the grid of a figure, the look of masked keys, the tokens on the axes, and refused arguments."""

import io
import subprocess
import sys

import numpy as np
import pytest
from keras import ops
from matplotlib import image, pyplot

from keras_attn import show_heatmaps
from keras_attn.callbacks._inputs import axis_tokens, tokens_of
from keras_attn.callbacks._pictures import TOKENS, picture, weights_figure

MATRICES = np.arange(2 * 3 * 4 * 5, dtype="float32").reshape(2, 3, 4, 5)


@pytest.mark.slow
def test_figure_is_a_grid_of_maps_on_one_colour_scale(tmp_path):
    figure = show_heatmaps(ops.cast(MATRICES, "bfloat16"), "To", "From", ["a", "b", "c"], (6, 4), "viridis")
    *maps, colorbar = figure.axes
    assert len(maps) == 6
    for axis, matrix in zip(maps, MATRICES.reshape(6, 4, 5), strict=True):
        (image,) = axis.images
        np.testing.assert_array_equal(image.get_array(), matrix)
        assert image.get_clim() == (0, 119)
        assert image.get_cmap().name == "viridis"
    assert [axis.get_title() for axis in maps] == ["a", "b", "c", "", "", ""]
    assert [axis.get_xlabel() for axis in maps] == [""] * 3 + ["To"] * 3
    assert [axis.get_ylabel() for axis in maps] == ["From", "", ""] * 2
    assert colorbar.get_label() == "<colorbar>"
    assert tuple(figure.get_size_inches()) == (6, 4)
    figure.savefig(tmp_path / "maps.png")
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")


def test_nan_cells_do_not_change_the_colour_scale():
    figure = show_heatmaps(np.array([[[[0.25, np.nan, 0.75]]]]))
    assert figure.axes[0].images[0].get_clim() == (0.25, 0.75)


def test_bad_matrices_and_titles_are_refused():
    for shape in ((3, 4, 5), (0, 3, 4, 5)):
        with pytest.raises(ValueError, match=r"`matrices` must have 4 axes.*Received: matrices shape"):
            show_heatmaps(np.zeros(shape))
    with pytest.raises(ValueError, match=r"one title for each column\. Received: 2 titles, 3 columns"):
        show_heatmaps(MATRICES, titles=["a", "b"])


@pytest.mark.slow
def test_package_imports_without_matplotlib_and_errors_name_the_extra():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import keras_attn, numpy\n"
        "from keras_attn.callbacks import AttentionLogger\n"
        "for call, given in ((keras_attn.show_heatmaps, [numpy.zeros((1, 1, 2, 3))]), (AttentionLogger, 'ab')):\n"
        "    try: call(*given)\n"
        "    except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.count('pip install "keras-attn[plot]"') == 2
    assert "`AttentionLogger` needs matplotlib" in done.stdout


def test_pyplot_does_not_hold_the_figure():
    before = pyplot.get_fignums()
    show_heatmaps(MATRICES)
    assert pyplot.get_fignums() == before


OPTIONS = {"max_examples": 4, "max_heads": 8, "queries": None, "keys": None}


def test_masked_keys_are_grey_and_others_are_red():
    weights = np.full((1, 2, 3, 4), 1 / 3, "float32")
    weights[..., 3] = 0
    weights[0, 1, 0, 0] = np.nan
    pixels = image.imread(io.BytesIO(picture(weights, "", **OPTIONS)))
    first, second, _ = weights_figure(weights, "", **OPTIONS).axes
    cells = pixels_of(first, pixels)
    width = cells.shape[1]
    masked, taken = cells[:, -width // 4 + 3 :], cells[:, : 3 * width // 4 - 3]
    assert (np.ptp(masked, axis=-1) < 0.01).all()
    assert len(np.unique(masked.round(1))) > 1, "no stripes"
    assert (taken == taken[0, 0]).all()
    assert taken[0, 0, 0] > taken[0, 0, 1] + 0.2, "not red"
    assert (pixels_of(second, pixels)[5, 5] == 0).all(), "NaN is black"


def pixels_of(axis, pixels):
    """Return the part of a picture within the axes."""
    box = axis.get_window_extent()
    height = pixels.shape[0]
    return pixels[round(height - box.y1) + 2 : round(height - box.y0) - 2, round(box.x0) + 2 : round(box.x1) - 2, :3]


def test_figure_is_a_grid_of_examples_and_heads_with_tokens():
    weights = np.random.default_rng(3).random((5, 3, 2, 4)).astype("float32")
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
    assert picture(weights, "", **(OPTIONS | {"queries": queries, "keys": keys}))  # dollars begin no formula


def test_zeros_and_long_sequences_are_drawn():
    assert picture(np.zeros((1, 3, 3), "float32"), "", **OPTIONS)
    long = [[str(step) for step in range(300)]]
    figure = weights_figure(np.ones((1, 2, 300)), "", **(OPTIONS | {"keys": long}))
    assert len(figure.axes[0].get_xticks()) <= 8


def test_tokens_are_looked_up_and_shortened():
    ids = ops.convert_to_tensor([[1, 2, 7], [3, 0, 0]])
    vocabulary = ["", "the", "a\nb", "unpronounceable"]
    expected = [["the", "a\\nb", "7"], ["unpronounce…", "", ""]]
    assert tokens_of({"words": ids}, {"words": vocabulary}) == {"words": expected}
    assert tokens_of({"0": ids}, {"any": dict(enumerate(vocabulary))}) == {"any": expected}
    with pytest.raises(ValueError, match=r"Received: 'word'. There are: 'words', 'lengths'"):
        tokens_of({"words": ids, "lengths": ids}, {"word": vocabulary})


def test_axis_gets_tokens_of_the_only_input_of_its_length():
    tokens = {"source": [["a", "b"]], "target": [["x", "y"]], "long": [["p", "q", "r"]]}
    assert axis_tokens(1, 3, None, tokens) == [["p", "q", "r"]]
    assert axis_tokens(1, 2, None, tokens) is None  # either
    assert axis_tokens(1, 2, "target", tokens) == [["x", "y"]]
    assert axis_tokens(1, 3, "target", tokens) is None
    assert axis_tokens(2, 3, None, tokens) is None  # as many examples as weights
