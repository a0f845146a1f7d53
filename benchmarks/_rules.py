"""Rules for the `adaptive` lowering: the sizes from which the form for large sizes is the faster one."""

import itertools
from math import log2
from typing import Any

import numpy as np
from _plans import ALL_VALID

from keras_attn_export._lowerings.forms import sliding_window
from keras_attn_export._thresholds import NEVER, WINDOW_KEYS

SMALL, LARGE = "small", "large"
FORMS = (SMALL, LARGE)
BAND = 64  # keys on either side of a query in the measured windows
QUERIES = (0, 1, 2, 4, 8, 16, 32, 64, 128)  # candidates for the number of queries that a rule subtracts
EXPONENTS = np.arange(8, 19, 0.5)  # of 2: candidates for the least number of pairs; more make golden cases too long


def rules_of(points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the best rule for each kind of call."""
    kinds = dict.fromkeys(point["kind"] for point in points)
    return {kind: best_rule(_decided(kind, points)) for kind in kinds}


def summary(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each rule: its bounds, and how much longer the chosen form takes than the faster one."""
    rows = []
    for kind, rule in rules_of(points).items():
        never = rule["pairs"] >= NEVER
        sizes = sum(point["kind"] == kind for point in points)
        bounds = {"queries": "never" if never else str(rule["queries"]), "pairs": "" if never else str(rule["pairs"])}
        losses = {"mean loss": rule["mean"], "worst loss": rule["worst"], "worst loss at": rule["where"]}
        rows.append({"kind of call": kind, **bounds, "sizes timed": str(sizes), **losses})
    return rows


def _decided(kind: str, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points that the rule of a kind decides; the rule of examples applies only if some keys are masked."""
    own = [point for point in points if point["kind"] == kind]
    partly = [point for point in own if point["fill"] != ALL_VALID] if kind == "examples" else []
    return partly or own


def best_rule(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rule with the least worst loss, rounded to a tenth, and among equal ones with the least mean loss.

    A rule chooses the form for large sizes if `(Tq - queries) * Tk >= pairs`; for additive scores, the left side is
    multiplied by the number of units.
    """
    bounds = [(queries, round(2**exponent)) for queries, exponent in itertools.product(QUERIES, EXPONENTS)]
    rules = [_judged(points, queries, pairs) for queries, pairs in [(0, NEVER), *bounds]]
    return min(rules, key=lambda rule: (round(rule["worst"], 1), round(rule["mean"], 3)))


def _judged(points: list[dict[str, Any]], queries: int, pairs: int) -> dict[str, Any]:
    """Return a rule with its worst and mean loss: the time of the chosen form divided by the time of the faster one."""
    losses = [
        point[LARGE if _counted(point, queries) >= pairs else SMALL] / min(point[form] for form in FORMS)
        for point in points
    ]
    worst = max(range(len(points)), key=lambda number: losses[number])
    point = points[worst]
    shape = " ".join(f"{axis}{point[axis]:g}" for axis in ("B", "H", "Tq", "Tk", "D"))
    where = ", ".join(part for part in (point.get("mask"), shape, point["fill"]) if part)
    mean = 2 ** float(np.mean([log2(loss) for loss in losses]))
    return {"queries": queries, "pairs": pairs, "worst": losses[worst], "mean": mean, "where": where}


def _counted(point: dict[str, Any], queries: int) -> float:
    counts = {"additive": point["D"], "window": _OF_WINDOW}.get(point["kind"], 1)
    return float((point["Tq"] - queries) * point["Tk"] * counts)


_OF_WINDOW = (WINDOW_KEYS / (sliding_window.QUERIES + 2 * BAND)) ** 2


def python_table(rules: dict[str, dict[str, Any]]) -> str:
    """Return the table of export/_thresholds.py with these rules."""
    lines = [
        f'    "{kind}": From({rule["queries"]}, {"NEVER" if rule["pairs"] == NEVER else rule["pairs"]}),'
        for kind, rule in rules.items()
    ]
    return "\n".join(["LARGE = {", *lines, "}"])
