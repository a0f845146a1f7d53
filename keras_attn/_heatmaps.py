"""Heat maps of attention weights with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def show_heatmaps(
    matrices: Any,
    xlabel: str = "Keys",
    ylabel: str = "Queries",
    titles: Sequence[str] | None = None,
    figsize: tuple[float, float] = (2.5, 2.5),
    cmap: str = "Reds",
) -> Figure:
    """Draw a grid of matrices, such as attention weights, as heat maps on one colour scale.

    Args:
        matrices: Array `(rows, columns, Tq, Tk)`: rows and columns of the grid, then the axes of a matrix.
        xlabel: Label of the horizontal axes.
        ylabel: Label of the vertical axes.
        titles: One title for each column, or None.
        figsize: Width and height of the whole figure in inches.
        cmap: Name of a matplotlib colour map.

    Returns:
        The figure, not registered with pyplot. Return it from a notebook cell to show it; save it by `savefig`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If `matrices` does not have 4 axes, is empty, or `titles` does not have one title for each column.

    Example:
        >>> show_heatmaps(weights[None], titles=["first example", "second example"], figsize=(5, 2.5))
    """
    figure_class = import_figure_class("show_heatmaps")
    from matplotlib.ticker import MaxNLocator

    grid = ops.convert_to_numpy(matrices)
    if grid.ndim != 4 or grid.size == 0:
        raise ValueError(
            "`matrices` must have 4 axes, none of size 0: (rows, columns, Tq, Tk). "
            f"Received: matrices shape {grid.shape}. Index one matrix as `matrix[None, None]`."
        )
    grid = grid.astype("float64")  # matplotlib does not support bfloat16
    rows, columns = grid.shape[:2]
    if titles is not None and len(titles) != columns:
        raise ValueError(
            f"`titles` must have one title for each column. Received: {len(titles)} titles, {columns} columns."
        )
    figure = figure_class(figsize=figsize, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    low, high = float(np.nanmin(grid)), float(np.nanmax(grid))
    for row, column in product(range(rows), range(columns)):
        axis = axes[row, column]
        image = axis.imshow(grid[row, column], cmap=cmap, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        axis.yaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        if row == rows - 1:
            axis.set_xlabel(xlabel)
        if column == 0:
            axis.set_ylabel(ylabel)
        if row == 0 and titles is not None:
            axis.set_title(titles[column])
    figure.colorbar(image, ax=axes, shrink=0.6)
    return figure


def import_figure_class(caller: str) -> type[Figure]:
    """Import matplotlib's `Figure`, which is independent of pyplot; raise ImportError that names the caller."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f'`{caller}` needs matplotlib, which is not installed. Install it with `pip install "keras-attn[plot]"`.'
        ) from error
    return Figure
