"""What tests are recorded to take stays within what they may: sums of numbers, nothing is timed here."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

from . import records

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


def test_every_test_is_recorded_and_the_record_names_tests_that_are_there():
    there = {(file, name): marks for file in FILES for name, marks in functions(file).items()}
    known = {(file, name.rpartition("::")[2]) for file, names in DURATIONS.functions.items() for name in names}
    unknown = [each for each in there if each not in known and there[each].isdisjoint(BUDGETS["elsewhere"])]
    assert unknown == [], "record them: .venv/bin/nox -s record -- FILE"
    assert sorted(known - there.keys()) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_keeps_to_its_budget(folder):
    taken = {
        file: sum(function.total for function in DURATIONS.functions.get(file, {}).values())
        for file in FILES
        if file.startswith(f"tests/{folder}/")
    } | {name: seconds for name, seconds in DURATIONS.fixtures.items() if name.startswith(f"tests/{folder}/")}
    dearest = sorted(taken, key=lambda name: -taken[name])[:3]
    assert sum(taken.values()) <= BUDGETS["folders"][folder], f"most of it: {', '.join(dearest)}"


def test_those_that_are_quick_by_a_mark_alone_are_few_and_a_product_says_why():
    recorded = [
        (f"{file}::{name}", DURATIONS.functions[file][name], marks)
        for file in FILES
        for name, marks in functions(file).items()
        if name in DURATIONS.functions.get(file, {})
    ]
    dear = [each.total for _, each, marks in recorded if "smoke" in marks and each.total > records.QUICK]
    assert len(dear) <= BUDGETS["smoke"]["tests"]
    assert sum(dear) <= BUDGETS["smoke"]["seconds"]
    assert [name for name, each, marks in recorded if "product" not in marks and each.cases > MANY] == []
