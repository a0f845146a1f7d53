"""The benchmarks: their statistics and thresholds, and that docs/performance.md shows the results."""

import _stats
import numpy as np
import pytest
import report
import thresholds
from _sizes import ALL_VALID
from _tables_of_rows import pays_from

from keras_attn_export._thresholds import LARGE, NEVER, From

PACKAGED = dict(LARGE)  # other tests make it small


def test_spread_ratio_and_line():
    assert _stats.spread(range(101)) == {"median": 50, "p10": 10, "p90": 90}
    ours, peer = [[1.0, 1.0], [10.0]], [[2.0], [20.0, 20.0]]  # a slow second round, for both
    assert _stats.ratio(ours, peer) == {"median": 2, "p10": 2, "p90": 2}
    assert _stats.line([1, 2, 3, 4], [5, 7, 9, 11]) == pytest.approx({"slope": 2, "start": 3, "r2": 1})
    assert _stats.line([1, 2, 3, 4], [5, 1, 7, 2])["r2"] < 0.2


@pytest.mark.parametrize(
    ("ours", "difference"),
    [([[1.0, -4.0]], 0), ([[1.0, -3.0]], 0.25), ([[1.0]], np.inf), ([], np.inf), ([[np.nan, -4.0]], np.nan)],
    ids=["same", "a quarter of the largest", "another shape", "another number of outputs", "NaN"],
)
def test_largest_difference(ours, difference):
    found = _stats.largest_difference([np.array(array) for array in ours], [np.array([1.0, -4.0])])
    np.testing.assert_equal(found, difference)


def points(*times, **other):
    """Times of both forms at 10 queries and 100, 200, ... keys."""
    shape = {"kind": "flash", "mask": "", "B": 1, "H": 1, "Tq": 10, "D": 8, "fill": ALL_VALID} | other
    return [{**shape, "Tk": 100 * n, "small": small, "large": large} for n, (small, large) in enumerate(times, 1)]


def test_best_rule_has_the_least_worst_loss():
    from_600_keys = [(1, 3)] * 5 + [(3, 2)] * 5
    rule = thresholds.best_rule(points(*from_600_keys))
    assert 5000 < rule["pairs"] <= 6000
    assert (rule["worst"], rule["mean"]) == (1, 1)
    assert 8 * 5000 < thresholds.best_rule(points(*from_600_keys, kind="additive"))["pairs"] <= 8 * 6000
    crossing = thresholds.best_rule(points((1, 1.2), (1.5, 1), (1, 1.1)))
    assert (crossing["worst"], crossing["where"]["Tk"]) == (pytest.approx(1.1), 300)
    assert thresholds.best_rule(points((1, 3), (2, 3)))["pairs"] == NEVER
    few = [point | {"Tk": 10 * point["Tk"]} for point in points((1, 2), (1, 2), Tq=1)]
    of_queries = thresholds.best_rule([*few, *points((2, 1), (2, 1))])  # keys alone do not tell
    assert 0 < of_queries["queries"] < 10
    assert of_queries["worst"] == 1


def test_package_has_the_rules_that_were_measured():
    rules = report.load(report.RESULTS)["thresholds"]["rules"]
    measured = {kind: From(rule["queries"], rule["pairs"]) for kind, rule in rules.items()}
    assert measured | {"distance": PACKAGED["distance"]} == PACKAGED, (
        "paste what benchmarks/thresholds.py prints into export/_thresholds.py"
    )


@pytest.mark.parametrize(("start", "machines", "rows"), [(1.0, 4, 8000), (1.0, 1, None), (1.0, 2, None), (9.0, 4, 0)])
def test_ray_pays_where_both_lines_meet(start, machines, rows):
    found = pays_from({"start": start, "rate": 1000.0}, {"start": 5.0, "rate": 500.0}, machines)
    assert found is None if rows is None else found == pytest.approx(rows)


def test_document_shows_the_results_of_whole_runs():
    text, results = report.DOCUMENT.read_text(encoding="utf-8"), report.load(report.RESULTS)
    assert report.render(text, results) == text, "run scripts/bench --report"
    assert not [name for name, result in results.items() if result["quick"]]
    named = {block["name"] for block in report.BLOCK.finditer(text)}
    scripts = {file.stem for file in report.HERE.glob("*.py") if not file.stem.startswith("_")}
    assert named - {"gpu"} == scripts - {"report"}
