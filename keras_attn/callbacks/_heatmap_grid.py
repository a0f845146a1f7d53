"""Draw the attention weights of a layer as one image: a grid of examples and heads."""

import io
import warnings
from typing import Any

import numpy as np

from .._heatmaps import import_figure_class
from ._axis_labels import TokenRows

MIN_INCHES, MAX_INCHES = 2.4, 6.0  # of a map along one axis
# At 100 dots per inch a token has 13 pixels, so labels of 6 points do not overlap. A cell has 4, and is not blurred.
INCHES_PER_TOKEN, INCHES_PER_CELL = 0.13, 0.04


def draw_heatmaps(weights: Any, title: str, queries: TokenRows | None, keys: TokenRows | None) -> bytes:
    """Draw weights `(B, H, Tq, Tk)` as a PNG file. Zeros are striped grey; NaN and infinity are black."""
    from matplotlib import colormaps

    num_examples, num_heads, num_queries, num_keys = weights.shape
    rows, columns = (num_examples, num_heads) if num_heads > 1 else (1, num_examples)
    size = (columns * _inches(num_keys, keys) + 1, rows * _inches(num_queries, queries) + 0.5)
    figure = import_figure_class("AttentionLogger")(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=9, wrap=True)
    axes = figure.subplots(rows, columns, squeeze=False)
    finite = np.isfinite(weights)
    high = float(weights[finite].max(initial=0.0)) or 1.0
    # NaN and infinity become values above the scale (black), zeros become NaN (transparent, so the hatch shows).
    cells = np.where(finite, weights, 2 * high)
    cells[weights == 0] = np.nan
    colors = colormaps["Reds"].with_extremes(over="black")
    for (example, head), axis in zip(np.ndindex(num_examples, num_heads), axes.flat, strict=True):
        axis.patch.set(facecolor="0.88", edgecolor="0.72", hatch="/////", linewidth=0)
        image = axis.imshow(cells[example, head], cmap=colors, vmin=0, vmax=high, aspect="auto")
        axis.set_title(f"example {example}, head {head}" if num_heads > 1 else f"example {example}", fontsize=7)
        axis.tick_params(labelsize=6, length=2, pad=1)
        axis.tick_params("x", rotation=90 if keys else 0)
        for side, length, tokens in ((axis.xaxis, num_keys, keys), (axis.yaxis, num_queries, queries)):
            side.set_ticks(range(0, length, 1 if tokens else -(-length // 8)), tokens and tokens[example])
    figure.colorbar(image, ax=axes, fraction=0.4 / size[0]).ax.tick_params(labelsize=6)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the font draws boxes for unknown scripts
        figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def _inches(size: int, tokens: TokenRows | None) -> float:
    return min(max(MIN_INCHES, (INCHES_PER_TOKEN if tokens else INCHES_PER_CELL) * size), MAX_INCHES)
