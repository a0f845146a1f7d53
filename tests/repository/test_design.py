"""docs/design.md is true: its table opens files, its order is that of the imports."""

import ast
import re
import tomllib
from pathlib import Path

import feature_table
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXPORT, LAYERS = ROOT / "export", ROOT / "keras_attn"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
PACKAGES = {"export": EXPORT, "keras_attn": LAYERS}
FOLDERS = {name: {path.parent.name for path in root.glob("*/__init__.py")} for name, root in PACKAGES.items()}


def section(title):
    return DESIGN.partition(f"{title}\n")[2].partition("\n##")[0]


def test_files_named_in_the_pages_exist():
    opened = re.findall(r"`((?:export|keras_attn)/[\w/.]*)`", section("### What to open for which change"))
    shown = re.findall(r"`(tests/[\w/.]*)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert opened
    assert shown
    assert [path for path in opened + shown if not (ROOT / path).exists()] == []


def test_packages_equal_the_folders():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    rooms = {f"keras_attn_export.{folder}": f"export/{folder}" for folder in FOLDERS["export"]}
    folders = {"keras_attn": "keras_attn", "keras_attn_export": "export", **rooms}
    assert set(tool["packages"]) == {*folders, *(f"keras_attn.{folder}" for folder in FOLDERS["keras_attn"])}
    assert tool["package-dir"] == folders


def order(package):
    line = section("### The order of imports").partition(f"The order of `{package}/`:")[2].partition("\n\n")[0]
    return re.findall(r"`(\w+)`", line)


@pytest.mark.parametrize("package", PACKAGES)
def test_import_order_names_every_module(package):
    files = {path.stem for path in PACKAGES[package].glob("*.py")} - {"__init__"}
    assert sorted(order(package)) == sorted(FOLDERS[package] | files)


def imported(file, root):
    """The modules of its own package that a file imports, as the parts of their paths from a folder."""
    here = file.relative_to(root).with_suffix("").parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = here[: len(here) - node.level]
            yield from [(*above, *node.module.split("."))] if node.module else ((*above, a.name) for a in node.names)


@pytest.mark.parametrize(("package", "room"), [(package, room) for package in PACKAGES for room in order(package)])
def test_imports_follow_the_order(package, room):
    root, rooms = PACKAGES[package], order(package)
    files = [root / f"{room}.py"] if (root / f"{room}.py").is_file() else sorted((root / room).glob("*.py"))
    others = {parts[0] for file in files for parts in imported(file, root)} - {room}
    right = set(rooms[rooms.index(room) + 1 :])
    assert others <= right, f"{room} imports {sorted(others - right)}"


def within(folder):
    """The files of a folder and which of their neighbours each imports."""
    files = [file for file in folder.glob("*.py") if file.stem != "__init__"]
    return {
        file.stem: {parts[1] for parts in imported(file, folder.parent) if parts[0] == folder.name} for file in files
    }


ROOMS = [root / name for package, root in PACKAGES.items() for name in sorted(FOLDERS[package])]


@pytest.mark.parametrize("folder", ROOMS, ids=lambda path: path.name)
def test_modules_of_a_folder_have_no_import_cycle(folder):
    left = within(folder)
    while free := [name for name, others in left.items() if not others & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"these import each other: {sorted(left)}"


def test_relative_imports_are_found():
    assert {"_bundle", "_standalone"} <= {parts[0] for parts in imported(EXPORT / "_export" / "contents.py", EXPORT)}
    assert "_standalone" in {parts[0] for parts in imported(EXPORT / "_errors.py", EXPORT)}
    assert within(EXPORT / "_lowerings")["lower"] >= {"bodies", "lowered"}


def test_every_python_file_belongs_to_a_feature():
    prefixes = {file: feature_table.prefix_of(file) for file in feature_table.files()}
    assert [file for file, prefix in prefixes.items() if not prefix] == []
    assert set(feature_table.owners()) == set(prefixes.values())  # no row names a place that is gone


def test_design_page_has_the_table_of_features():
    numbers = re.compile(r"[\d,]+ ")
    page = feature_table.PAGE.read_text(encoding="utf-8")
    assert numbers.sub("", page) == numbers.sub("", feature_table.page()), (
        "run python tests/repository/feature_table.py"
    )
