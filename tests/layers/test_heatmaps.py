"""Heat maps: the figure's parts, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest
from keras import ops
from matplotlib import pyplot

from keras_attn import show_heatmaps

MATRICES = np.arange(2 * 3 * 4 * 5, dtype="float32").reshape(2, 3, 4, 5)


@pytest.mark.slow
def test_a_grid_of_maps_on_one_colour_scale(tmp_path):
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


def test_cells_that_are_nan_do_not_take_the_scale_away():
    figure = show_heatmaps(np.array([[[[0.25, np.nan, 0.75]]]]))
    assert figure.axes[0].images[0].get_clim() == (0.25, 0.75)


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5), (0, 3, 4, 5)])
def test_anything_but_a_grid_of_matrices_is_refused(shape):
    with pytest.raises(ValueError, match=r"`matrices` must have 4 axes.*Received: matrices shape"):
        show_heatmaps(np.zeros(shape))


def test_one_title_a_column():
    with pytest.raises(ValueError, match=r"one title for each column\. Received: 2 titles, 3 columns"):
        show_heatmaps(MATRICES, titles=["a", "b"])


@pytest.mark.slow
def test_without_matplotlib_the_package_imports_and_errors_name_the_extra():
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
