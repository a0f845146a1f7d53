"""The benchmarks: their statistics and thresholds, and that docs/performance.md shows the results."""

import ast
import itertools
import json

import _calibration
import _files
import _report
import _stats
import _thresholds
import numpy as np
import pytest
import whole_models
from _harness import HERE, QUESTIONS, RESULTS
from _plans import ALL_VALID
from _tables_of_batch import pays_from

from keras_attn_export._thresholds import LARGE, NEVER, From

PACKAGED = dict(LARGE)  # other tests make it small


def test_spread_and_ratio():
    assert _stats.spread(range(101)) == {"median": 50, "p10": 10, "p90": 90}
    ours, peer = [[1.0, 1.0], [10.0]], [[2.0], [20.0, 20.0]]  # a slow second round, for both
    assert _stats.ratio(ours, peer) == {"median": 2, "p10": 2, "p90": 2}


@pytest.mark.parametrize(
    ("ours", "difference"),
    [([[1.0, -4.0]], 0), ([[1.0, -3.0]], 0.25), ([[1.0]], np.inf), ([], np.inf), ([[np.nan, -4.0]], np.nan)],
    ids=["same", "a quarter of the largest", "another shape", "another number of outputs", "NaN"],
)
def test_largest_difference(ours, difference):
    found = _stats.largest_difference([np.array(array) for array in ours], [np.array([1.0, -4.0])])
    np.testing.assert_equal(found, difference)


def test_a_machine_that_others_use_is_told():
    assert not _calibration.moved([1.0, 1.09])
    assert not _calibration.moved([1.6, 1.0, 1.6, 1.05])  # a neighbour that comes and goes
    assert _calibration.moved([1.0, 1.0, 0.9])
    assert _calibration.moved([1.0, 1.6, 1.6, 1.5])
    assert 0 < _calibration.calibrate() < _calibration.SECONDS


def event(name, at, op="", took=0):
    return {"name": name, "ts": at, "dur": took, "cat": "Node", "args": {"op_name": op}}


def test_what_products_take_is_that_of_the_fastest_run_but_the_first(tmp_path):
    runs = [[event("model_run", 100 * run), event("a_kernel_time", 100 * run + 1, "MatMul", took)] for run, took in
            enumerate([500, 4000, 3000, 2000])]  # fmt: skip
    other = [event("b_kernel_time", 150, "LSTM", 500), event("c_kernel_time", 150, "Relu", 700), event("fence", 150)]
    (file := tmp_path / "profile.json").write_text(json.dumps([*itertools.chain(*runs), *other]), encoding="utf-8")
    assert _files._kernels(file) == {"products": 2, "fused": 0}
    (file).write_text(json.dumps([*runs[0], *runs[1], *other]), encoding="utf-8")
    assert _files._kernels(file) == {"products": 4, "fused": 0.5}


def whole(ours, theirs, slim, products):
    rows = {whole_models.OURS: ours, whole_models.THEIRS: theirs, whole_models.SLIM: slim}
    rows = [
        {"contestant": name, "ms": {"min": ms}, "faster": {"median": theirs / ms}} for name, ms in rows.items() if ms
    ]
    return {
        "rows": rows,
        "peer": whole_models.THEIRS,
        "products": {"products": products, "attention and recurrence": 0},
    }


def test_aims_of_whole_models_leave_out_peers_that_do_not_run():
    found = whole_models.aims_of([whole(2, 4, 3, 1.9), whole(4, 4, None, 1), whole(4, 0, None, 1)])
    assert [each["value"] for each in found] == pytest.approx([1, 2**0.5, 1.5, 2 / 1.9])


def points(*times, **other):
    """Times of both forms at 10 queries and 100, 200, ... keys."""
    shape = {"kind": "flash", "mask": "", "B": 1, "H": 1, "Tq": 10, "D": 8, "fill": ALL_VALID} | other
    return [{**shape, "Tk": 100 * n, "small": small, "large": large} for n, (small, large) in enumerate(times, 1)]


def test_best_rule_has_the_least_worst_loss():
    from_600_keys = [(1, 3)] * 5 + [(3, 2)] * 5
    rule = _thresholds.best_rule(points(*from_600_keys))
    assert 5000 < rule["pairs"] <= 6000
    assert (rule["worst"], rule["mean"]) == (1, 1)
    assert 8 * 5000 < _thresholds.best_rule(points(*from_600_keys, kind="additive"))["pairs"] <= 8 * 6000
    crossing = _thresholds.best_rule(points((1, 1.2), (1.5, 1), (1, 1.1)))
    assert (crossing["worst"], crossing["where"]["Tk"]) == (pytest.approx(1.1), 300)
    assert _thresholds.best_rule(points((1, 3), (2, 3)))["pairs"] == NEVER
    few = [point | {"Tk": 10 * point["Tk"]} for point in points((1, 2), (1, 2), Tq=1)]
    of_queries = _thresholds.best_rule([*few, *points((2, 1), (2, 1))])  # keys alone do not tell
    assert 0 < of_queries["queries"] < 10
    assert of_queries["worst"] == 1


def test_package_has_the_rules_that_were_measured():
    rules = _report.load(RESULTS)["thresholds"]["rules"]
    measured = {kind: From(rule["queries"], rule["pairs"]) for kind, rule in rules.items()}
    assert measured | {"distance": PACKAGED["distance"]} == PACKAGED, (
        "paste what `scripts/bench thresholds` prints into export/_thresholds.py"
    )


@pytest.mark.parametrize(("start", "machines", "rows"), [(1.0, 4, 8000), (1.0, 1, None), (1.0, 2, None), (9.0, 4, 0)])
def test_ray_pays_where_both_lines_meet(start, machines, rows):
    found = pays_from({"start": start, "rate": 1000.0}, {"start": 5.0, "rate": 500.0}, machines)
    assert found is None if rows is None else found == pytest.approx(rows)


def test_document_shows_the_results_of_whole_runs():
    text, results = _report.DOCUMENT.read_text(encoding="utf-8"), _report.load(RESULTS)
    assert _report.render(text, results) == text, "run scripts/bench --report"
    assert not [name for name, result in results.items() if result["quick"]]
    parts = [part for parts in QUESTIONS.values() for part in parts]
    assert {block["name"] for block in _report.BLOCK.finditer(text)} == set(parts)
    assert set(parts) == set(results)


def test_each_question_is_a_script_with_its_parts():
    assert {file.stem for file in HERE.glob("*.py") if not file.stem.startswith("_")} == set(QUESTIONS)
    for question, parts in QUESTIONS.items():
        tree = ast.parse((HERE / f"{question}.py").read_text(encoding="utf-8"))  # to import it takes what not all have
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        imported = {name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names}
        assert set(parts) <= defined | imported
