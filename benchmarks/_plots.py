"""Results as plots."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch

OURS, PEER, OTHERS = "#c1272d", "#1f4e79", "#9aa5b1"
LEAST = 0.97  # of the speed of Keras's layer, at every shape
LAYERS = {"additive": "additive attention", "dot": "scaled dot product"}
Result = dict[str, Any]


def _colour(label: str) -> str:
    if label.startswith("ours"):
        return OURS
    return PEER if label.startswith("plain ONNX") else OTHERS


def _save(figure: Any, file: Path) -> None:
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)


def additive(result: Result, file: Path) -> None:
    """Draw the time of an element by implementation: a panel a size, a bar each for all valid and half filled."""
    sizes = list(dict.fromkeys(case["size"] for case in result["cases"]))
    labels = dict.fromkeys(row["contestant"] for case in result["cases"] for row in case["rows"] if "ms" in row)
    places = {label: place for place, label in enumerate(reversed(labels))}
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(4 + 2.4 * len(sizes), 0.8 + 0.42 * len(places)), sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for axis, size in zip(axes[0], sizes, strict=True):
        _bars(axis, [case for case in result["cases"] if case["size"] == size], places)
        axis.set(title=size, xlabel="ns an element (lower is better)")
    axes[0, 0].set_yticks(list(places.values()), list(places))
    fills = dict.fromkeys(case["fill"] for case in result["cases"])
    handles = [Patch(color=OTHERS, alpha=1 - 0.5 * index, label=fill) for index, fill in enumerate(fills)]
    axes[0, -1].legend(handles=handles, loc="upper right", frameon=False)
    _save(figure, file)


def _bars(axis: Any, cases: list[dict[str, Any]], places: dict[str, int]) -> None:
    height = 0.8 / len(cases)
    for index, case in enumerate(cases):
        rows = [row for row in case["rows"] if "ms" in row]
        values = [row["ms"]["median"] * 1e6 / case["elements"] for row in rows]
        at = [places[row["contestant"]] + 0.4 - height * (index + 0.5) for row in rows]
        colours = [_colour(row["contestant"]) for row in rows]
        axis.barh(at, values, height, color=colours, alpha=1 - 0.5 * index)
        for y, value in zip(at, values, strict=True):
            axis.text(value, y, f" {value:.2f}", va="center", fontsize=7)
    axis.margins(x=0.2)
    axis.spines[["top", "right"]].set_visible(False)


def against_keras(result: Result, file: Path) -> None:
    """Draw the speed of ours over Keras's layer for each shape, to either side of 1, with what is asked."""
    rows = [
        (case, row["faster"]["median"])
        for case in reversed(result["cases"])  # the first at the top
        for row in case["rows"]
        if row["contestant"] == "ours" and "ms" in row
    ]
    figure, axis = plt.subplots(figsize=(9, 1 + 0.22 * len(rows)), layout="constrained")
    speeds, places = [speed for _, speed in rows], range(len(rows))
    colours = [OURS if speed >= LEAST else OTHERS for speed in speeds]
    axis.barh(places, [speed - 1 for speed in speeds], 0.7, left=1, color=colours)
    axis.scatter([case["asked"] for case, _ in rows], places, marker="|", s=70, color=PEER, zorder=3)
    axis.axvline(1, color=PEER, linewidth=0.8)
    axis.axvline(LEAST, color=PEER, linewidth=0.8, linestyle=":")
    axis.set_xscale("log", base=2)
    axis.set_xlim(left=min(0.5, *speeds) / 1.1)
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    axis.set_xticks([tick for tick in ticks if tick >= axis.get_xlim()[0]])
    axis.xaxis.set_major_formatter("{x:g}")
    names = [f"{case['size']}, {case['fill']}: {speed:.2f}x" for case, speed in rows]
    axis.set_yticks(places, names, fontsize=7)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set(xlabel="speed over Keras's layer in the file of its exporter")
    handles = [
        Patch(color=OURS, label=f"{LEAST}x and more, the dotted line"),
        Patch(color=OTHERS, label="slower"),
        axis.scatter([], [], marker="|", s=70, color=PEER, label="asked"),
    ]
    axis.legend(handles=handles, loc="upper right", frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    _save(figure, file)


def keys(result: Result, file: Path) -> None:
    """Draw time and extra memory against the number of keys: a column a layer."""
    figure, axes = plt.subplots(2, len(LAYERS), figsize=(9, 6), sharex=True, squeeze=False, layout="constrained")
    for column, (layer, title) in zip(axes.T, LAYERS.items(), strict=True):
        cases = [case for case in result["cases"] if case["layer"] == layer]
        for axis, quantity in zip(column, ("ms", "extra MiB"), strict=True):
            _lines(axis, cases, quantity)
        column[0].set_title(f"{title}, {cases[0]['shape']['Tq']} queries")
        column[1].set_xlabel("keys")
    for axis, quantity in zip(axes[:, 0], ("ms", "extra MiB"), strict=True):
        axis.set_ylabel(quantity)
    axes[0, 0].legend(frameon=False)
    _save(figure, file)


def _lines(axis: Any, cases: list[dict[str, Any]], quantity: str) -> None:
    for label in dict.fromkeys(row["contestant"] for case in cases for row in case["rows"] if "ms" in row):
        points = [(case["shape"]["Tk"], row) for case in cases for row in case["rows"] if row["contestant"] == label]
        x = [count for count, _ in points]
        if quantity == "ms":
            axis.fill_between(
                x, *([row["ms"][p] for _, row in points] for p in ("p10", "p90")), color=_colour(label), alpha=0.2
            )
        y = [row["ms"]["median"] if quantity == "ms" else row["memory"] for _, row in points]
        axis.plot(x, y, "o-", color=_colour(label), label=label, markersize=4)
    axis.set_xscale("log", base=2)
    if quantity == "ms":
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xticks(x, [str(count) for count in x])
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
