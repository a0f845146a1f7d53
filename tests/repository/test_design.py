"""docs/design.md is true: its table opens files, its order is that of the imports."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXPORT, LAYERS = ROOT / "export", ROOT / "keras_attn"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
FOLDERS = {path.parent.name for path in EXPORT.glob("*/__init__.py")}


def section(title):
    return DESIGN.partition(f"{title}\n")[2].partition("\n##")[0]


def test_files_that_it_says_to_open_are_there():
    opened = re.findall(r"`((?:export|keras_attn)/[\w/.]*)`", section("### To change ..., open ..."))
    assert opened
    assert [path for path in opened if not (ROOT / path).exists()] == []


def test_the_packages_are_the_folders():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    rooms = {f"keras_attn_export.{folder}": f"export/{folder}" for folder in FOLDERS}
    folders = {"keras_attn": "keras_attn", "keras_attn_export": "export", **rooms}
    assert set(tool["packages"]) == set(folders)
    assert tool["package-dir"] == folders


def order():
    line = section("## The way of a model").partition("holds the list to the code:")[2]
    return re.findall(r"`(\w+)`", line)


def test_the_order_names_everything():
    files = {path.stem for path in EXPORT.glob("*.py")} - {"__init__"}
    assert sorted(order()) == sorted(FOLDERS | files)


def imported(file, root):
    """The modules of its own package that a file imports, as the parts of their paths from a folder."""
    here = file.relative_to(root).with_suffix("").parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = here[: len(here) - node.level]
            yield from [(*above, *node.module.split("."))] if node.module else ((*above, a.name) for a in node.names)


@pytest.mark.parametrize("room", order())
def test_imports_go_one_way(room):
    files = [EXPORT / f"{room}.py"] if (EXPORT / f"{room}.py").is_file() else sorted((EXPORT / room).glob("*.py"))
    others = {parts[0] for file in files for parts in imported(file, EXPORT)} - {room}
    right = set(order()[order().index(room) + 1 :])
    assert others <= right, f"{room} imports {sorted(others - right)}"


def within(folder):
    """The files of a folder and which of their neighbours each imports."""
    files = [file for file in folder.glob("*.py") if file.stem != "__init__"]
    return {
        file.stem: {parts[1] for parts in imported(file, folder.parent) if parts[0] == folder.name} for file in files
    }


@pytest.mark.parametrize("folder", [*(EXPORT / name for name in sorted(FOLDERS)), LAYERS], ids=lambda path: path.name)
def test_no_circle_within_a_folder(folder):
    left = within(folder)
    while free := [name for name, others in left.items() if not others & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"these import each other: {sorted(left)}"


def test_an_import_is_seen():
    assert {"_bundle", "_standalone"} <= {parts[0] for parts in imported(EXPORT / "_export" / "contents.py", EXPORT)}
    assert "_standalone" in {parts[0] for parts in imported(EXPORT / "_errors.py", EXPORT)}
    assert within(EXPORT / "_lowerings")["lower"] >= {"bodies", "lowered"}
