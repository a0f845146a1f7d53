"""The benchmarks: their statistics and tables, and that docs/performance.md shows the results that are there."""

import _stats
import _tables
import numpy as np
import pytest
import report
import thresholds
from _sizes import ADDITIVE, ALL_VALID, DOT, HALF_FILLED, Size, lengths, random_inputs

from keras_attn_export._thresholds import LARGE, NEVER, From

TIMED = {"median": 2.0, "p10": 1.5, "p90": 2.5, "runs": 9}
ENVIRONMENT = {
    "date": "2026-01-02", "processor": "P", "gpu": None, "cores": 2, "system": "S", "threads": 2, "load": 0.1,
    "versions": {"numpy": "2"},
}  # fmt: skip


def row(label, **changed):
    measured = {"note": "", "ms": TIMED, "memory": 7.4, "difference": 0.0, "faster": {"median": 3.0}}
    return {"contestant": label, **measured, **changed}


@pytest.fixture
def result():
    shape = {"layer": ADDITIVE, "Tk": 4}
    case = {"size": "B1 T4 U8", "shape": shape, "elements": 1000, "peer": "peer"}
    missing = {"contestant": "absent", "unavailable": "it is not there"}
    cases = [
        {**case, "fill": ALL_VALID, "rows": [row("peer"), row("ours", note="blocks"), missing]},
        {**case, "fill": HALF_FILLED, "rows": [row("peer", faster=None), missing]},
    ]
    bars = [_stats.bar("speed", 3.0, 2.5, at_least=True), _stats.bar("memory", 0.5, 0.125, at_least=False)]
    return {"name": "x", "title": "X", "environment": ENVIRONMENT, "cases": cases, "bars": bars}


# ------------------------------------------------------------------- statistics


def test_spread():
    assert _stats.spread(range(101)) == {"median": 50, "p10": 10, "p90": 90}


def test_ratio_is_taken_within_rounds():
    ours, peer = [[1.0, 1.0], [10.0]], [[2.0], [20.0, 20.0]]  # a slow second round, for both
    assert _stats.ratio(ours, peer) == {"median": 2, "p10": 2, "p90": 2}


def test_line():
    fitted = _stats.line([1, 2, 3, 4], [5, 7, 9, 11])
    assert fitted == pytest.approx({"slope": 2, "start": 3, "r2": 1})
    assert _stats.line([1, 2, 3, 4], [5, 1, 7, 2])["r2"] < 0.2


@pytest.mark.parametrize(
    ("ours", "difference"),
    [([[1.0, -4.0]], 0), ([[1.0, -3.0]], 0.25), ([[1.0]], np.inf), ([], np.inf)],
    ids=["same", "a quarter of the largest", "another shape", "another number of outputs"],
)
def test_largest_difference(ours, difference):
    reference = [np.array([1.0, -4.0])]
    assert _stats.largest_difference([np.array(array) for array in ours], reference) == difference


def test_a_nan_is_no_small_difference():
    assert not _stats.largest_difference([np.array([np.nan, 1.0])], [np.array([1.0, 1.0])]) <= 1e-4


@pytest.mark.parametrize(
    ("value", "at_least", "reached"),
    [(2.0, True, True), (1.9, True, False), (2.0, False, True), (2.1, False, False), (None, True, None)],
)
def test_bar(value, at_least, reached):
    assert _stats.bar("", value, 2.0, at_least=at_least)["reached"] is reached


# -------------------------------------------------------------------- thresholds


def points(*times):
    """Times of both forms at 10 queries and 100, 200, ... keys."""
    shape = {"kind": "flash", "mask": "", "B": 1, "H": 1, "Tq": 10, "D": 8, "fill": ALL_VALID}
    return [{**shape, "Tk": 100 * n, "small": small, "large": large} for n, (small, large) in enumerate(times, 1)]


def test_best_rule_has_the_least_worst_loss():
    rule = thresholds.best_rule(points(*[(1, 3)] * 5, *[(3, 2)] * 5))  # the large form wins from 6000 pairs on
    assert 5000 < rule["pairs"] <= 6000
    assert (rule["worst"], rule["mean"]) == (1, 1)
    crossing = thresholds.best_rule(points((1, 1.2), (1.5, 1), (1, 1.1)))
    assert (crossing["worst"], crossing["where"]["Tk"]) == (pytest.approx(1.1), 300)


def test_units_count_for_additive_scores():
    times = [{**point, "kind": "additive"} for point in points(*[(1, 3)] * 5, *[(3, 2)] * 5)]
    assert 8 * 5000 < thresholds.best_rule(times)["pairs"] <= 8 * 6000


def test_best_rule_is_never_where_the_large_form_never_wins():
    assert thresholds.best_rule(points((1, 3), (2, 3)))["pairs"] == NEVER


def test_best_rule_asks_for_queries_where_keys_alone_do_not_tell():
    few = [{**point, "Tq": 1, "Tk": 10 * point["Tk"]} for point in points((1, 2), (1, 2))]
    rule = thresholds.best_rule([*few, *points((2, 1), (2, 1))])
    assert 0 < rule["queries"] < 10
    assert rule["worst"] == 1


PACKAGED = dict(LARGE)  # other tests make it small


def test_package_has_the_rules_that_were_measured():
    rules = report.load(report.RESULTS)["thresholds"]["rules"]
    measured = {kind: From(rule["queries"], rule["pairs"]) for kind, rule in rules.items()}
    assert measured | {"distance": From(0, NEVER)} == PACKAGED, (
        "paste what benchmarks/thresholds.py prints into export/_thresholds.py"
    )


# ----------------------------------------------------------------------- inputs


def test_lengths_fill_half_on_average():
    size = Size(DOT, B=8, Tq=3, Tk=100, D=4)
    assert lengths(size, ALL_VALID).tolist() == [100] * 8
    assert lengths(size, HALF_FILLED).mean() == pytest.approx(50, abs=1)
    assert lengths(Size(DOT, B=1, Tq=3, Tk=100, D=4), HALF_FILLED).tolist() == [50]
    assert lengths(Size(DOT, B=2, Tq=3, Tk=100, D=4, per_query=True), HALF_FILLED).shape == (2, 3)


def test_inputs_are_no_zeros():
    inputs = random_inputs(Size(ADDITIVE, B=2, Tq=3, Tk=5, D=4, U=6), HALF_FILLED)
    assert {name: array.shape for name, array in inputs.items()} == {
        "queries": (2, 3, 4), "keys": (2, 5, 4), "values": (2, 5, 4), "valid_lens": (2,),
    }  # fmt: skip
    assert all(array.all() for array in inputs.values())


# ---------------------------------------------------------------------- reports


def test_tables(result):
    lines = _tables.markdown(result).splitlines()
    assert (
        "| peer | 2 (1.5 to 2.5) | 2e+03 | 3x | 7 | 2 (1.5 to 2.5) | 2e+03 |  | 7 |".replace("2e+03", "2000") in lines
    )
    assert "| ours | 2 (1.5 to 2.5) (blocks) | 2000 | 3x | 7 |  |  |  |  |" in lines
    assert lines.count("- absent, not available: it is not there") == 1
    assert "| speed | at least 2.5 | 3 | yes |" in lines
    assert "| memory | at most 0.125 | 0.5 | **no** |" in lines


def test_what_exports_cost():
    rows = [
        {"contestant": by, "seconds": seconds, "memory": 2e9, "before": 5e8, "started": started}
        for by, seconds, started in (("a", 3, 0), ("b", 4, 1e9))
    ]
    rows.append({"contestant": "c", "failed": "not done in 300 s"})
    cases = [{"model": "encoder", "weights": 10**7, "rows": rows}]
    result = {"name": "export_cost", "title": "X", "environment": ENVIRONMENT, "cases": cases, "bars": []}
    lines = _tables.markdown(result).splitlines()
    assert "| encoder | 10 | a | 3 | 2 | 0.5 | 0 |" in lines
    assert "| encoder | 10 | b | 4 | 2 | 0.5 | 1 |" in lines
    assert "| encoder | 10 | c | not done in 300 s |  |  |  |" in lines


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.00001234, "0.000012"), (0.1234, "0.123"), (12.34, "12.3"), (123456.0, "123456")]
)
def test_numbers_have_three_digits_and_no_exponent(value, text):
    assert _tables.number(value) == text


def test_report_changes_nothing_but_its_blocks_and_is_idempotent(result):
    text = "before\n<!-- table: x -->\nold\n<!-- end of table -->\nbetween\n<!-- table: y -->\n<!-- end of table -->\n"
    once = report.render(text, {"x": result})
    assert report.render(once, {"x": result}) == once
    assert "old" not in once
    assert once.startswith("before\n<!-- table: x -->\n| B1 T4 U8 |")
    assert "\n<!-- end of table -->\nbetween\n<!-- table: y -->\nNo results are here" in once


def test_results_of_a_gpu_have_their_own_place(result):
    text = "<!-- table: gpu -->\n<!-- end of table -->"
    assert "### X\n\n| B1 T4 U8 |" in report.render(text, {"x.cuda": result})
    assert "No results of a GPU" in report.render(text, {"x": result})


def test_document_shows_the_results():
    text = report.DOCUMENT.read_text(encoding="utf-8")
    assert report.render(text, report.load(report.RESULTS)) == text, "run scripts/bench --report"


def test_results_are_not_those_of_a_quick_run():
    assert not [name for name, result in report.load(report.RESULTS).items() if result["quick"]]


def test_every_benchmark_has_a_place_in_the_document():
    named = {block["name"] for block in report.BLOCK.finditer(report.DOCUMENT.read_text(encoding="utf-8"))}
    scripts = {file.stem for file in report.HERE.glob("*.py") if not file.stem.startswith("_")}
    assert named - {"gpu"} == scripts - {"report"}
