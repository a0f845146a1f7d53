"""Pictures of the attention weights of a layer: all examples and heads on one grid."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._heatmaps import matplotlib_figure
from ._inputs import Tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ZERO, STRIPES = "0.88", "0.72"  # shades of grey; no colour of the scale is grey
WIDEST_GRID = 4  # maps side by side where each example has a single one
MOST_TOKENS = 48  # that an axis has room for
FINEST = 250  # cells of a side that are at least two pixels wide
# Sizes in inches. They are set by hand: to let matplotlib arrange them takes three times as long as all the rest.
MAP, A_TOKEN, A_CELL, WIDEST_MAP = 1.8, 0.11, 0.02, 5.0
GAP, NUMBERS, TOKENS, RIGHT, TOP = 0.25, 0.2, 0.7, 0.8, 0.6


class _Map(NamedTuple):
    title: str
    matrix: Any
    queries: Sequence[str] | None
    keys: Sequence[str] | None


def picture(weights: Any, title: str, **options: Any) -> bytes:
    """A PNG file of `weights_figure`."""
    figure = weights_figure(weights, title, **options)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # a font without some script draws boxes
        figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def weights_figure(
    weights: Any, title: str, *, max_examples: int, max_heads: int, queries: Tokens | None, keys: Tokens | None
) -> Figure:
    """A figure of weights `B + (Tq, Tk)` or `B + (H, Tq, Tk)`, where zeros are striped grey and NaN is black.

    Args:
        weights: An array.
        title: What stands above.
        max_examples: How many examples are shown.
        max_heads: How many heads of each.
        queries: The tokens of the queries of each example.
        keys: Likewise of the keys.
    """
    queries, keys = _if_they_fit(queries), _if_they_fit(keys)
    rows = [
        _maps(index, each, max_heads, *(None if tokens is None else tokens[index] for tokens in (queries, keys)))
        for index, each in enumerate(weights[:max_examples])
    ]
    if all(len(row) == 1 for row in rows):
        maps = [row[0] for row in rows]
        rows = [maps[start : start + WIDEST_GRID] for start in range(0, len(maps), WIDEST_GRID)]
    figure: Figure
    figure, axes, scale_axis = _grid(rows)
    figure.suptitle(title, y=1 - 0.12 / figure.get_figheight(), va="top", fontsize=9, wrap=True)
    finite = weights[:max_examples][np.isfinite(weights[:max_examples])]
    high = float(finite.max(initial=0.0)) or 1.0
    for row, in_row in zip(axes, rows, strict=True):
        for column, axis in enumerate(row):
            if column < len(in_row):
                image = _draw(axis, in_row[column], high, shows_queries=_shows_queries(in_row, column))
            else:
                axis.set_axis_off()
    figure.colorbar(image, cax=scale_axis).ax.tick_params(labelsize=6)
    return figure


def _if_they_fit(tokens: Tokens | None) -> Tokens | None:
    return None if tokens is None or len(tokens[0]) > MOST_TOKENS else tokens


def _maps(index: int, weights: Any, most: int, queries: Sequence[str] | None, keys: Sequence[str] | None) -> list[_Map]:
    """The maps of an example: one, or one a head."""
    heads = weights.shape[:-2]
    matrices = weights.reshape(prod(heads), *weights.shape[-2:])[:most]
    return [
        _Map(f"example {index}{', head ' * bool(head)}{'.'.join(map(str, head))}", matrix, queries, keys)
        for head, matrix in zip(np.ndindex(heads), matrices, strict=False)
    ]


def _grid(rows: list[list[_Map]]) -> tuple[Any, Any, Any]:
    """A figure with room for the maps; their axes; and that of the scale."""
    first = rows[0][0]
    num_queries, num_keys = first.matrix.shape
    width, height = _extent(num_keys, first.keys), _extent(num_queries, first.queries)
    beside, below = (NUMBERS if tokens is None else TOKENS for tokens in (first.queries, first.keys))
    lefts, wide = [], 0.0
    for column in range(len(rows[0])):
        wide += GAP + beside * _shows_queries(rows[0], column)
        lefts.append(wide)
        wide += width
    wide += RIGHT
    pitch = height + below + GAP
    high = TOP + len(rows) * pitch
    figure = matplotlib_figure("AttentionLogger")(figsize=(wide, high))

    def place(x: float, y: float, w: float) -> Any:
        return figure.add_axes((x / wide, 1 - (y + height) / high, w / wide, height / high))

    axes = [[place(left, TOP + row * pitch, width) for left in lefts] for row in range(len(rows))]
    return figure, axes, place(wide - RIGHT + 0.15, TOP, 0.15)


def _extent(size: int, tokens: Sequence[str] | None) -> float:
    return min(max(MAP, (A_CELL if tokens is None else A_TOKEN) * size), WIDEST_MAP)


def _shows_queries(row: list[_Map], column: int) -> bool:
    """Whether a map has labels for its queries: those of the map before will do for heads, and are many to draw."""
    return column == 0 or row[column].queries is not row[column - 1].queries


def _draw(axis: Any, each: _Map, high: float, *, shows_queries: bool) -> Any:
    matrix = each.matrix
    axis.patch.set(facecolor=ZERO, edgecolor=STRIPES, hatch="/////", linewidth=0)
    look = {"aspect": "auto", "interpolation": "nearest" if max(matrix.shape) <= FINEST else "antialiased"}
    image = axis.imshow(np.where(matrix == 0, np.nan, matrix), cmap="Reds", vmin=0, vmax=high, **look)
    if not np.isfinite(matrix).all():
        broken = np.where(np.isfinite(matrix), np.nan, 1.0)
        axis.imshow(broken, cmap="binary", vmin=0, vmax=1, **look)
    axis.set_title(each.title, fontsize=7, pad=3)
    axis.tick_params(labelsize=6, length=2, pad=1)
    _label(axis.xaxis, each.keys, matrix.shape[1], rotation=90)
    if shows_queries:
        _label(axis.yaxis, each.queries, matrix.shape[0], rotation=0)
    else:
        axis.set_yticks([])
    return image


def _label(axis: Any, tokens: Sequence[str] | None, size: int, rotation: float) -> None:
    if tokens is None:
        axis.set_ticks(range(0, size, -(-size // 8)))
    else:
        axis.set_ticks(range(size), tokens, rotation=rotation, parse_math=False)
