"""docs/design.md against the repository: named files, packages, the order of imports, and the table of features."""

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
# Imports against the order, allowed inside functions: a bundle and an export write a report on request.
LAZY_IMPORTS = {("_bundle", "_report"), ("_export", "_report")}


def read_section(title):
    return DESIGN.partition(f"{title}\n")[2].partition("\n##")[0]


def test_files_named_in_the_pages_exist():
    source_paths = re.findall(r"`((?:export|keras_attn)/[\w/.]*)`", read_section("### To change X, open Y"))
    test_paths = re.findall(r"`(tests/[\w/.]*)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert source_paths
    assert test_paths
    assert [path for path in source_paths + test_paths if not (ROOT / path).exists()] == []


def test_packages_equal_the_folders():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    files = [file for root in PACKAGES.values() for file in root.rglob("__init__.py")]
    paths = [file.parent.relative_to(ROOT).as_posix() for file in files]
    names = {path.replace("export", "keras_attn_export", 1).replace("/", "."): path for path in paths}
    assert set(tool["packages"]) == set(names)
    assert tool["package-dir"] == {
        name: path for name, path in names.items() if path.startswith("export") or path == "keras_attn"
    }


def read_order(package):
    line = read_section("### The order of imports").partition(f"The order of `{package}/`:")[2].partition("\n\n")[0]
    return re.findall(r"`(\w+)`", line)


@pytest.mark.parametrize("package", PACKAGES)
def test_import_order_names_every_module(package):
    files = {path.stem for path in PACKAGES[package].glob("*.py")} - {"__init__"}
    assert sorted(read_order(package)) == sorted(FOLDERS[package] | files)


def find_imports(file, root, *, lazy=True):
    """Yield the modules of its own package that a file imports, as parts of paths; without `lazy`, at module level."""
    importer = file.relative_to(root).with_suffix("").parts
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    in_functions = {node for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and (lazy or node not in in_functions):
            parent = importer[: len(importer) - node.level]
            names = [(*parent, *(node.module.split(".") if node.module else ()))]
            yield from ((*names[0], alias.name) for alias in node.names)
            yield from names if node.module else ()


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in PACKAGES for name in read_order(package)])
def test_imports_follow_the_order(package, name):
    root, order = PACKAGES[package], read_order(package)
    files = [root / f"{name}.py"] if (root / f"{name}.py").is_file() else sorted((root / name).rglob("*.py"))
    lazy = {target for importer, target in LAZY_IMPORTS if importer == name and package == "export"}
    imports = {parts[0] for file in files for parts in find_imports(file, root)} - {name} - lazy
    imports |= {parts[0] for file in files for parts in find_imports(file, root, lazy=False)} & lazy
    allowed = set(order[: order.index(name)])
    assert imports <= allowed, f"{name} imports {sorted(imports - allowed)}"


def build_import_graph(root):
    """Return the modules of a package, with the modules of the package that each imports at module level."""
    files = {file.relative_to(root).with_suffix("").parts: file for file in root.rglob("*.py")}
    return {
        name: {parts for parts in find_imports(file, root, lazy=False) if parts in files} - {name}
        for name, file in files.items()
        if name[-1] != "__init__"
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_have_no_import_cycle(package):
    graph = build_import_graph(PACKAGES[package])
    while leaves := [name for name, imports in graph.items() if not imports & set(graph)]:
        for name in leaves:
            del graph[name]
    assert not graph, f"these import each other: {sorted(map('.'.join, graph))}"


def test_relative_imports_are_found():
    assert {"_bundle", "_format"} <= {parts[0] for parts in find_imports(EXPORT / "_export/write_contents.py", EXPORT)}
    assert "_format" in {parts[0] for parts in find_imports(EXPORT / "_errors.py", EXPORT)}
    assert "_report" in {parts[0] for parts in find_imports(EXPORT / "_bundle" / "bundle.py", EXPORT)}
    assert "_report" not in {parts[0] for parts in find_imports(EXPORT / "_bundle" / "bundle.py", EXPORT, lazy=False)}
    graph = build_import_graph(EXPORT)
    assert graph["_lowerings", "lower_model"] >= {("_lowerings", "lowering_choice"), ("_lowerings", "lowered_model")}
    assert graph["_lowerings", "forms", "fused"] >= {("_lowerings", "heads"), ("_onnx", "lazy_values")}


def test_every_python_file_belongs_to_a_feature():
    prefixes = {file: feature_table.find_prefix(file) for file in feature_table.list_files()}
    assert [file for file, prefix in prefixes.items() if not prefix] == []
    assert set(feature_table.map_prefixes_to_features()) == set(prefixes.values())  # each prefix has a file


def test_design_page_has_the_table_of_features():
    numbers = re.compile(r"[\d,]+ ")
    page = feature_table.PAGE.read_text(encoding="utf-8")
    assert numbers.sub("", page) == numbers.sub("", feature_table.build_page()), (
        "run python tests/repository/feature_table.py"
    )
