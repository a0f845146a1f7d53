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


def imported_rooms(file):
    """The folders and files at the top of the export that a file imports, its own left out."""
    here = file.relative_to(EXPORT).with_suffix("").parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = [*here[: len(here) - node.level], *(node.module or "").split(".")]
            rooms = parts[:1] if parts[0] else [alias.name for alias in node.names]
            yield from (room for room in rooms if room != here[0])


@pytest.mark.parametrize("room", order())
def test_imports_go_one_way(room):
    files = [EXPORT / f"{room}.py"] if (EXPORT / f"{room}.py").is_file() else sorted((EXPORT / room).glob("*.py"))
    imported = {other for file in files for other in imported_rooms(file)}
    right = set(order()[order().index(room) + 1 :])
    assert imported <= right, f"{room} imports {sorted(imported - right)}"


def within(folder):
    """The files of a folder and which of their neighbours each imports."""
    return {
        file.stem: {
            name
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and node.level == 1
            for name in ([node.module.split(".")[0]] if node.module else [alias.name for alias in node.names])
        }
        for file in folder.glob("*.py")
        if file.stem != "__init__"
    }


@pytest.mark.parametrize("folder", [*(EXPORT / name for name in sorted(FOLDERS)), LAYERS], ids=lambda path: path.name)
def test_no_circle_within_a_folder(folder):
    left = within(folder)
    while free := [name for name, imported in left.items() if not imported & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"these import each other: {sorted(left)}"


def test_an_import_is_seen():
    assert {"_bundle", "_standalone"} <= set(imported_rooms(EXPORT / "_export" / "contents.py"))
    assert "_standalone" in set(imported_rooms(EXPORT / "_errors.py"))
    assert within(EXPORT / "_lowerings")["lower"] >= {"bodies", "lowered"}
