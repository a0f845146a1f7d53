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
# Imports against the order, inside functions only: a bundle and an export write a report on request.
LAZY_IMPORTS = {("_bundle", "_report"), ("_export", "_report")}


def section(title):
    return DESIGN.partition(f"{title}\n")[2].partition("\n##")[0]


def test_files_named_in_the_pages_exist():
    opened = re.findall(r"`((?:export|keras_attn)/[\w/.]*)`", section("### To change X, open Y"))
    shown = re.findall(r"`(tests/[\w/.]*)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert opened
    assert shown
    assert [path for path in opened + shown if not (ROOT / path).exists()] == []


def test_packages_equal_the_folders():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {name: root.rglob("__init__.py") for name, root in PACKAGES.items()}
    paths = [path.parent.relative_to(ROOT).as_posix() for found in folders.values() for path in found]
    names = {path.replace("export", "keras_attn_export", 1).replace("/", "."): path for path in paths}
    assert set(tool["packages"]) == set(names)
    assert tool["package-dir"] == {
        name: path for name, path in names.items() if path.startswith("export") or path == "keras_attn"
    }


def order(package):
    line = section("### The order of imports").partition(f"The order of `{package}/`:")[2].partition("\n\n")[0]
    return re.findall(r"`(\w+)`", line)


@pytest.mark.parametrize("package", PACKAGES)
def test_import_order_names_every_module(package):
    files = {path.stem for path in PACKAGES[package].glob("*.py")} - {"__init__"}
    assert sorted(order(package)) == sorted(FOLDERS[package] | files)


def imported(file, root, *, lazy=True):
    """The modules of its own package that a file imports, as the parts of their paths; lazy ones in functions too."""
    here = file.relative_to(root).with_suffix("").parts
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    in_functions = {node for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and (lazy or node not in in_functions):
            above = here[: len(here) - node.level]
            names = [(*above, *(node.module.split(".") if node.module else ()))]
            yield from ((*names[0], alias.name) for alias in node.names)
            yield from names if node.module else ()


@pytest.mark.parametrize(("package", "room"), [(package, room) for package in PACKAGES for room in order(package)])
def test_imports_follow_the_order(package, room):
    root, rooms = PACKAGES[package], order(package)
    files = [root / f"{room}.py"] if (root / f"{room}.py").is_file() else sorted((root / room).rglob("*.py"))
    lazy = {other for importer, other in LAZY_IMPORTS if importer == room and package == "export"}
    others = {parts[0] for file in files for parts in imported(file, root)} - {room} - lazy
    others |= {parts[0] for file in files for parts in imported(file, root, lazy=False)} & lazy
    below = set(rooms[: rooms.index(room)])
    assert others <= below, f"{room} imports {sorted(others - below)}"


def imports_of(root):
    """The modules of a package, and the modules of it that each imports at module level."""
    files = {file.relative_to(root).with_suffix("").parts: file for file in root.rglob("*.py")}
    return {
        name: {parts for parts in imported(file, root, lazy=False) if parts in files} - {name}
        for name, file in files.items()
        if name[-1] != "__init__"
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_have_no_import_cycle(package):
    left = imports_of(PACKAGES[package])
    while free := [name for name, others in left.items() if not others & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"these import each other: {sorted(map('.'.join, left))}"


def test_relative_imports_are_found():
    assert {"_bundle", "_format"} <= {parts[0] for parts in imported(EXPORT / "_export" / "write_contents.py", EXPORT)}
    assert "_format" in {parts[0] for parts in imported(EXPORT / "_errors.py", EXPORT)}
    assert "_report" in {parts[0] for parts in imported(EXPORT / "_bundle" / "bundle.py", EXPORT)}
    assert "_report" not in {parts[0] for parts in imported(EXPORT / "_bundle" / "bundle.py", EXPORT, lazy=False)}
    graph = imports_of(EXPORT)
    assert graph["_lowerings", "lower_model"] >= {("_lowerings", "lowering_choice"), ("_lowerings", "lowered_model")}
    assert graph["_lowerings", "forms", "fused"] >= {("_lowerings", "heads"), ("_onnx", "lazy_values")}


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
