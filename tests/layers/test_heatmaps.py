"""Heat maps of `show_heatmaps` and `AttentionLogger`: grids, masked keys, tokens, and invalid arguments."""

import io
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops
from matplotlib import image, pyplot
from matplotlib.figure import Figure

from keras_attn import show_heatmaps
from keras_attn.callbacks._axis_labels import find_axis_tokens, look_up_tokens
from keras_attn.callbacks._heatmap_grid import draw_heatmaps

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


def test_invalid_matrices_and_titles_are_rejected():
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
        "for call, args in ((keras_attn.show_heatmaps, [numpy.zeros((1, 1, 2, 3))]), (AttentionLogger, 'ab')):\n"
        "    try: call(*args)\n"
        "    except ImportError as error: print(error)"
    )
    process = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert process.stdout.count('pip install "keras-attn[plot]"') == 2
    assert "`AttentionLogger` needs matplotlib" in process.stdout


def test_pyplot_does_not_register_the_figure():
    figure_numbers = pyplot.get_fignums()
    show_heatmaps(MATRICES)
    assert pyplot.get_fignums() == figure_numbers


@pytest.mark.slow
def test_masked_keys_are_striped_and_nan_is_black():
    def measure_colours(weight):
        """Draw the weights 0.5 and `weight`; return the fractions of pixels that are grey, striped and black."""
        png = draw_heatmaps(np.float32([[[[0.5, weight]]]]), "", None, None)
        pixels = image.imread(io.BytesIO(png))[..., :3, None]
        return (abs(pixels - np.array([0.88, 0.72, 0])) < 0.01).all(axis=2).mean(axis=(0, 1))

    unmasked_colours = measure_colours(1e-9)
    assert (measure_colours(0) - unmasked_colours > [0.1, 0.02, -0.01]).all()
    assert measure_colours(np.nan)[2] - unmasked_colours[2] > 0.2


def test_images_have_a_grid_of_examples_and_heads_with_tokens(monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    weights = np.random.default_rng(3).random((2, 3, 2, 4)).astype("float32")
    queries, keys = ([[f"{example}{n}" for n in range(size)] for example in range(2)] for size in (2, 4))
    draw_heatmaps(weights, "a/b", queries, keys)
    draw_heatmaps(weights[:, :1], "one head", None, None)
    (*maps, _), (*row, _) = (figure.axes for figure in figures)
    assert [axis.get_title() for axis in maps] == [f"example {e}, head {h}" for e in range(2) for h in range(3)]
    assert [axis.get_title() for axis in row] == ["example 0", "example 1"]
    assert row[0].get_subplotspec().get_geometry()[:2] == (1, 2)
    for index, axis in enumerate(maps):
        np.testing.assert_array_equal(axis.images[0].get_array(), weights.reshape(6, 2, 4)[index])
        assert axis.images[0].get_clim() == (0, weights.max())
        assert [text.get_text() for text in axis.get_xticklabels()] == keys[index // 3]
        assert [text.get_text() for text in axis.get_yticklabels()] == queries[index // 3]


def test_tokens_of_ids_label_axes_with_one_matching_input():
    words = keras.Input((3,), dtype="int32", name="words")
    model = keras.Model(words, keras.layers.Embedding(9, 2)(words))
    ids = np.array([[1, 2, 7], [3, 0, 4]])
    vocabulary = ["", "the", "$$", "unpronounceable"]
    for labels in ({"words": vocabulary}, {"any": dict(enumerate(vocabulary))}):
        (tokens,) = look_up_tokens(model, ids, labels)
        assert tokens == [["the", r"\$\$", "7"], ["unpronouncea", "", "4"]]
    assert find_axis_tokens([tokens, [["a"]] * 2], 2, 3) == tokens
    assert find_axis_tokens([tokens, tokens], 2, 3) is None
    assert find_axis_tokens([tokens], 4, 3) is None
    assert find_axis_tokens([[["a"] * 49]], 1, 49) is None
    inputs = {"words": ids, "lengths": ids[0], "floats": ids.astype("float32")}
    for name in ("word", "lengths", "floats"):
        with pytest.raises(ValueError, match=rf"Received: '{name}'. The inputs are: .*'words': \(2, 3\)"):
            look_up_tokens(model, inputs, {name: vocabulary})
    with pytest.raises(ValueError, match=r"Received: 'words'. The inputs are: {0: \(2, 3\), 1: \(3,\)}"):
        look_up_tokens(keras.layers.Layer(), [ids, ids[0]], {"words": vocabulary})  # a layer declares no inputs
