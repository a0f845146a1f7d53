"""Statistics, size thresholds and tables of the benchmarks."""

import _rules
import _stats
import _tables
import pytest
from _harness import QUESTIONS, RESULTS, render_table
from _plans import ALL_VALID

from keras_attn_export._thresholds import LARGE_THRESHOLDS, NEVER, SizeThreshold

PACKAGED = dict(LARGE_THRESHOLDS)  # a copy: other tests lower the thresholds


def test_spread_and_ratio_are_medians_with_percentiles():
    assert _stats.summarize(range(101)) == {"median": 50, "p10": 10, "p90": 90}
    ours, peer = [[1.0, 1.0], [10.0]], [[2.0], [20.0, 20.0]]  # a slow second round, for both
    assert _stats.summarize_ratio(ours, peer) == {"median": 2, "p10": 2, "p90": 2}


def build_points(*times, **settings):
    """Return pairs of times, of the small and the large form, as points with 10 queries and 100, 200, ... keys."""
    shape = {"kind": "flash", "mask": "", "B": 1, "H": 1, "Tq": 10, "D": 8, "fill": ALL_VALID} | settings
    return [{**shape, "Tk": 100 * n, "small": small, "large": large} for n, (small, large) in enumerate(times, 1)]


def test_best_rule_has_the_least_worst_loss():
    crossing_at_600_keys = [(1, 3)] * 5 + [(3, 2)] * 5
    rule = _rules.find_best_rule(build_points(*crossing_at_600_keys))
    assert 5000 < rule["pairs"] <= 6000
    assert (rule["worst"], rule["mean"]) == (1, 1)
    assert 8 * 5000 < _rules.find_best_rule(build_points(*crossing_at_600_keys, kind="additive"))["pairs"] <= 8 * 6000
    two_crossings = _rules.find_best_rule(build_points((1, 1.2), (1.5, 1), (1, 1.1)))
    assert two_crossings["worst"] == pytest.approx(1.1)
    assert "Tk300" in two_crossings["where"]
    assert _rules.find_best_rule(build_points((1, 3), (2, 3)))["pairs"] == NEVER
    single_query = [point | {"Tk": 10 * point["Tk"]} for point in build_points((1, 2), (1, 2), Tq=1)]
    rule = _rules.find_best_rule([*single_query, *build_points((2, 1), (2, 1))])  # pairs alone do not separate them
    assert 0 < rule["queries"] < 10
    assert rule["worst"] == 1


def test_package_has_the_measured_rules():
    rules = _rules.find_rules(_tables.read_csv(RESULTS / "thresholds.csv")[0])
    measured = {kind: SizeThreshold(rule["queries"], rule["pairs"]) for kind, rule in rules.items()}
    assert measured | {"distance": PACKAGED["distance"]} == PACKAGED, (
        "paste what `scripts/bench thresholds` prints into export/_thresholds.py"
    )


def test_document_has_one_table_for_each_question():
    text = _tables.DOCUMENT.read_text(encoding="utf-8")
    assert sorted(block["name"] for block in _tables.BLOCK.finditer(text)) == sorted(QUESTIONS)
    assert (
        _tables.replace_tables(text, {question: render_table(question, RESULTS) for question in QUESTIONS}) == text
    ), "run scripts/bench --report"
