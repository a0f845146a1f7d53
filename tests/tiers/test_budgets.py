"""What tests are recorded to take stays within what they may: sums of numbers, nothing is timed here."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

from . import plan, records

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = tomllib.loads((Path(__file__).parent / "budgets.toml").read_text(encoding="utf-8"))
DURATIONS = records.load("tensorflow")
MANY = 30


@cache
def functions(file):
    """The test functions of a file, and the marks that stand over each or over the whole file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    above = {mark for node in tree.body if isinstance(node, ast.Assign) for mark in marks_of(node)}
    return {
        node.name: above | {mark for decorator in node.decorator_list for mark in marks_of(decorator)}
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def marks_of(node):
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and "mark" in ast.unparse(each)}


FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
FOLDERS = sorted({file.split("/")[1] for file in FILES if file.count("/") > 1})


def test_every_test_is_recorded():
    unknown = [
        f"{file}::{name}"
        for file in FILES
        for name, marks in functions(file).items()
        if name not in DURATIONS.functions.get(file, {}) and marks.isdisjoint(BUDGETS["elsewhere"])
    ]
    assert unknown == [], "record them: .venv/bin/nox -s record -- FILE"


def test_the_record_names_tests_that_are_there():
    gone = [
        f"{file}::{name}"
        for file, names in DURATIONS.functions.items()
        for name in names
        if file not in FILES or name.rpartition("::")[2] not in functions(file)
    ]
    assert gone == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_keeps_to_its_budget(folder):
    taken = {
        file: sum(function.total for function in DURATIONS.functions.get(file, {}).values())
        for file in FILES
        if file.startswith(f"tests/{folder}/")
    } | {name: seconds for name, seconds in DURATIONS.fixtures.items() if name.startswith(f"tests/{folder}/")}
    dearest = sorted(taken, key=lambda name: -taken[name])[:3]
    assert sum(taken.values()) <= BUDGETS["folders"][folder], f"most of it: {', '.join(dearest)}"


def test_quick_tests_are_quick():
    """All of them fit, and those that are quick by a mark alone are few."""
    marked = [(file, name) for file in FILES for name, marks in functions(file).items() if "smoke" in marks]
    dear = [
        (f, n) for f, n in marked if DURATIONS.functions.get(f, {}).get(n, records.Function()).total > records.QUICK
    ]
    assert len(dear) <= BUDGETS["smoke"]["tests"]
    assert sum(DURATIONS.functions[f][n].total for f, n in dear) <= BUDGETS["smoke"]["seconds"]


def test_a_product_says_why():
    assert [
        f"{file}::{name} has {DURATIONS.functions[file][name].cases} cases"
        for file in FILES
        for name, marks in functions(file).items()
        if DURATIONS.functions.get(file, {}).get(name, records.Function()).cases > MANY and "product" not in marks
    ] == []


def test_no_test_waits_for_more_than_a_dozen_runs():
    rest = sum(
        sum(function.dear.values()) if function.seconds <= records.QUICK else function.total
        for file, names in DURATIONS.functions.items()
        for function in names.values()
    )
    assert rest / plan.SLICE <= plan.MOST_SLICES
