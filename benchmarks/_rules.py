"""Rules of the `adaptive` lowering: sizes from which the large form is faster than the small form.

A rule chooses the large form if `(Tq - queries) * Tk >= pairs`; for additive scores, the left side is multiplied by the
number of units, and for a window by (`MEASURED_WINDOW_KEYS` / keys that a block of queries reads) ** 2. The loss of a
rule at a measured size is the time of the chosen form divided by the time of the faster form. All candidates of
`queries` and `pairs` are evaluated. The best rule has the smallest worst loss, rounded to a tenth since times are
noisy, and then the smallest (geometric) mean loss. `export/_thresholds.py` contains the resulting rules.
"""

import itertools
from math import log2
from typing import Any

import numpy as np
from _plans import ALL_VALID

from keras_attn_export._lowerings.forms import sliding_window
from keras_attn_export._thresholds import MEASURED_WINDOW_KEYS, NEVER

SMALL, LARGE = "small", "large"
FORMS = (SMALL, LARGE)
BAND_KEYS = 64  # keys on either side of a query in the measured windows
QUERY_CANDIDATES = (0, 1, 2, 4, 8, 16, 32, 64, 128)  # for the number of queries that a rule subtracts
# Candidates of `pairs` are powers of 2. A larger threshold would need golden cases that take too long.
PAIR_EXPONENTS = np.arange(8, 19, 0.5)


def find_rules(points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the best rule of each kind of call."""
    kinds = dict.fromkeys(point["kind"] for point in points)
    return {kind: find_best_rule(_select_points(kind, points)) for kind in kinds}


def summarize_rules(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a table row for each rule: its bounds, and its losses."""
    rows = []
    for kind, rule in find_rules(points).items():
        sizes = sum(point["kind"] == kind for point in points)
        queries, pairs = ("never", "") if rule["pairs"] >= NEVER else (str(rule["queries"]), str(rule["pairs"]))
        bounds = {"queries": queries, "pairs": pairs}
        losses = {"mean loss": rule["mean"], "worst loss": rule["worst"], "worst loss at": rule["where"]}
        rows.append({"kind of call": kind, **bounds, "sizes timed": str(sizes), **losses})
    return rows


def _select_points(kind: str, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the measured points of a kind; the rule of examples applies only if some keys are masked."""
    points_of_kind = [point for point in points if point["kind"] == kind]
    half_filled = [point for point in points_of_kind if point["fill"] != ALL_VALID] if kind == "examples" else []
    return half_filled or points_of_kind


def find_best_rule(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rule with the smallest worst loss and then the smallest mean loss."""
    candidates = itertools.product(QUERY_CANDIDATES, PAIR_EXPONENTS)
    bounds = [(queries, round(2**exponent)) for queries, exponent in candidates]
    rules = [_evaluate_rule(points, queries, pairs) for queries, pairs in [(0, NEVER), *bounds]]
    return min(rules, key=lambda rule: (round(rule["worst"], 1), round(rule["mean"], 3)))


def _evaluate_rule(points: list[dict[str, Any]], queries: int, pairs: int) -> dict[str, Any]:
    """Return a rule with its worst loss, mean loss, and the point of the worst loss."""
    losses = [
        point[LARGE if _count_pairs(point, queries) >= pairs else SMALL] / min(point[form] for form in FORMS)
        for point in points
    ]
    worst_index = max(range(len(points)), key=lambda index: losses[index])
    point = points[worst_index]
    shape = " ".join(f"{axis}{point[axis]:g}" for axis in ("B", "H", "Tq", "Tk", "D"))
    text = ", ".join(part for part in (point.get("mask"), shape, point["fill"]) if part)
    mean = 2 ** float(np.mean([log2(loss) for loss in losses]))
    return {"queries": queries, "pairs": pairs, "worst": losses[worst_index], "mean": mean, "where": text}


def _count_pairs(point: dict[str, Any], queries: int) -> float:
    factors = {"additive": point["D"], "window": _WINDOW_FACTOR}.get(point["kind"], 1)
    return float((point["Tq"] - queries) * point["Tk"] * factors)


_WINDOW_FACTOR = (MEASURED_WINDOW_KEYS / (sliding_window.BLOCK_QUERIES + 2 * BAND_KEYS)) ** 2


def format_python_table(rules: dict[str, dict[str, Any]]) -> str:
    """Return the table of export/_thresholds.py with these rules."""
    lines = [
        f'    "{kind}": SizeThreshold({rule["queries"]}, {"NEVER" if rule["pairs"] == NEVER else rule["pairs"]}),'
        for kind, rule in rules.items()
    ]
    return "\n".join(["LARGE_THRESHOLDS = {", *lines, "}"])
