"""Results as plots."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from _stats import best_speed, rows_of, speed
from matplotlib.patches import Patch

OURS, PEER, OTHERS = "#c1272d", "#1f4e79", "#9aa5b1"
MANY, ONE = "B8", "B1"  # how what is said of a size begins
Result = dict[str, Any]


def layers(result: Result, file: Path) -> None:
    """Draw the speed of ours over Keras's layer for each shape, to either side of 1, with its target."""
    found = [(case, speed(case, "ours")) for case in reversed(result["cases"])]  # the first at the top
    rows = [(case, faster) for case, faster in found if faster]
    figure, axis = plt.subplots(figsize=(9, 1 + 0.22 * len(rows)), layout="constrained")
    speeds, places = [faster for _, faster in rows], range(len(rows))
    colours = [OURS if faster >= case["asked"] else OTHERS for case, faster in rows]
    axis.barh(places, [faster - 1 for faster in speeds], 0.7, left=1, color=colours)
    axis.scatter([case["asked"] for case, _ in rows], places, marker="|", s=70, color=PEER, zorder=3)
    axis.axvline(1, color=PEER, linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.set_xlim(left=min(0.5, *speeds) / 1.1)
    axis.set_xticks([tick for tick in (0.25, 0.5, 1, 2, 4, 8) if tick >= axis.get_xlim()[0]])
    axis.xaxis.set_major_formatter("{x:g}")
    names = [f"{case['size']}, {case['fill']}: {faster:.2f}x" for case, faster in rows]
    axis.set_yticks(places, names, fontsize=7)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set(xlabel="speed over Keras's layer, exported by Keras")
    handles = [
        Patch(color=OURS, label="meets its target"),
        Patch(color=OTHERS, label="below its target"),
        axis.scatter([], [], marker="|", s=70, color=PEER, label="target"),
    ]
    axis.legend(handles=handles, loc="upper right", frameon=False, fontsize=8)
    _save(figure, file)


def models(result: Result, file: Path) -> None:
    """Draw the speed of our file over Keras's for each model, a point a size, the fastest at the top."""
    found = [(case["size"], case["fill"], best_speed(case, "ours")) for case in result["cases"]]
    by_model = {name: [faster for other, _, faster in found if other == name and faster] for name, _, _ in found}
    order = sorted((name for name in by_model if by_model[name]), key=lambda name: max(by_model[name]))
    figure, axis = plt.subplots(figsize=(9, 1 + 0.22 * len(order)), layout="constrained")
    for place, name in enumerate(order):
        axis.plot(by_model[name], [place] * len(by_model[name]), color=OTHERS, zorder=1)
    for fills, colour, label in ((MANY, OURS, "8 examples"), (ONE, PEER, "1 example")):
        points = [(faster, order.index(name)) for name, fill, faster in found if faster and fill.startswith(fills)]
        axis.scatter(
            [faster for faster, _ in points], [place for _, place in points], s=22, color=colour, label=label, zorder=2
        )
    axis.axvline(1, color=PEER, linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.set_xticks([tick for tick in (0.5, 1, 1.5, 2, 3, 4, 8) if axis.get_xlim()[0] <= tick <= axis.get_xlim()[1]])
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_yticks(range(len(order)), order, fontsize=7)
    axis.set_ylim(-0.6, len(order) - 0.4)
    axis.set(xlabel="speed over the same model, exported by Keras")
    axis.legend(loc="lower right", frameon=False, fontsize=8)
    _save(figure, file)


def cost_against_keys(result: Result, file: Path) -> None:
    """Draw time and extra memory against the number of keys: a column a layer."""
    titles = list(dict.fromkeys(case["layer"] for case in result["cases"]))
    figure, axes = plt.subplots(2, len(titles), figsize=(9, 6), sharex=True, squeeze=False, layout="constrained")
    for (time, memory), title in zip(axes.T, titles, strict=True):
        cases = [case for case in result["cases"] if case["layer"] == title]
        keys = [case["keys"] for case in cases]
        for label, colour in zip(rows_of(cases[0]), (PEER, OURS), strict=True):
            rows = [rows_of(case)[label] for case in cases]
            low, high, median = ([row["ms"][part] for row in rows] for part in ("p10", "p90", "median"))
            time.fill_between(keys, low, high, color=colour, alpha=0.2)
            time.plot(keys, median, "o-", color=colour, label=label, markersize=4)
            memory.plot(keys, [row["memory"] for row in rows], "o-", color=colour, markersize=4)
        time.set_xscale("log", base=2)
        time.set_yscale("log")
        time.set(title=title)
        memory.set_ylim(0, 1.1 * max(row["memory"] for case in cases for row in case["rows"]))
        memory.set_xticks(keys, [str(count) for count in keys])
        memory.set(xlabel="keys")
    axes[0, 0].set(ylabel="ms")
    axes[1, 0].set(ylabel="extra MiB")
    axes[0, 0].legend(frameon=False)
    _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)
