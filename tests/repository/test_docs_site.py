"""The site of docs/: its menu has every page, its reference every public name, and what is built is whole."""

import importlib
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import command_line_page
import coverage_page
import pytest
import tf2onnx
import yaml
from built_site import built_faults
from site_pages import menu_pages, targets

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
MODULES = ("keras_attn", "keras_attn.callbacks", "keras_attn.decoding", "keras_attn.migrate", "keras_attn_export")
CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_every_page_is_in_the_menu_and_every_public_name_in_the_reference_once():
    pages = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    assert sorted(menu_pages(CONFIGURATION["nav"])) == sorted(pages)
    reference = "\n".join(text for name, text in pages.items() if name.startswith("reference/"))
    public = sorted(f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__)
    assert sorted(re.findall(r"^::: (\S+)$", reference, flags=re.MULTILINE)) == public


def test_the_command_line_is_the_one_of_the_parser_and_the_service_the_example():
    shown = command_line_page.PAGE.read_text(encoding="utf-8")
    assert shown == command_line_page.page(), "write it anew: python tests/repository/command_line_page.py"
    service = (ROOT / "examples" / "serve_bundle.py").read_text(encoding="utf-8")
    assert f"\n```python\n{service}```\n" in (DOCS / "serving.md").read_text(encoding="utf-8")


def test_coverage_counts_what_the_pages_of_operators_and_models_record():
    shown = coverage_page.PAGE.read_text(encoding="utf-8")
    assert shown == coverage_page.page(), "write it anew: python tests/repository/coverage_page.py"


def test_a_page_whose_subject_is_not_stable_says_so_as_the_table_of_grades_does():
    listed = {}
    for row in (DOCS / "stability.md").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\|[^|]+\| (evolving|experimental) \|", row):
            for page in targets(row):
                listed.setdefault(page, set()).add(found[1])
    said = {}
    for path in DOCS.rglob("*.md"):
        note = re.match(r"# .+\n\n((?:.+\n)+)", path.read_text(encoding="utf-8"))
        if grades := set(re.findall(r"\*\*(Evolving|Experimental)\*\*", note[1] if note else "")):
            said[path.relative_to(DOCS).as_posix()] = {grade.lower() for grade in grades}
    assert said == listed


def test_the_patches_for_tf2onnx_apply_to_the_one_that_is_installed(tmp_path):
    """One that no longer does has been taken over, or must be made anew; see docs/upstream.md."""
    shutil.copytree(Path(tf2onnx.__file__).parent, tmp_path / "tf2onnx", ignore=shutil.ignore_patterns("__pycache__"))
    patches = sorted((DOCS / "upstream").glob("*.patch"))
    named = [DOCS / target for target in targets((DOCS / "upstream.md").read_text(encoding="utf-8"))]
    assert patches == sorted(path for path in named if path.suffix == ".patch")
    for patch in patches:
        done = subprocess.run(
            ["git", "apply", "--check", str(patch)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.needs("griffe")
def test_docstrings_have_sections_that_are_known():
    names = runpy.run_path(str(ROOT / "scripts" / "docstrings.py"))
    text = (
        "Line.\n\nCall arguments:\n    keys: Floats,\n        `B`.\n    values, training: More.\n\n"
        "Example:\n    >>> x: int = 1\n\nSee `docs/export.md`."
    )
    assert names["with_known_sections"](text) == (
        "Line.\n\nCall arguments:\n    - `keys`: Floats,\n        `B`.\n    - `values`, `training`: More.\n\n"
        "Examples:\n    >>> x: int = 1\n\nSee [the page on export](../export.md)."
    )


@pytest.mark.nightly
@pytest.mark.needs("zensical", "mkdocstrings")
def test_the_site_builds_and_is_whole():
    """By the command of scripts/docs, which itself calls scripts/setup: that may clear what this test runs in."""
    packages = ROOT / "build" / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    if not (packages / "keras_attn_export").exists():
        (packages / "keras_attn_export").symlink_to("../../export")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    assert " ".join(command[2:]) in (ROOT / "scripts" / "docs").read_text(encoding="utf-8")
    shutil.rmtree(SITE, ignore_errors=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert built_faults(SITE) == []


def test_a_broken_built_page_is_found(tmp_path):
    good = '<h1 id="a">A</h1><a href="../b.html#b"></a><img src="p.png"><a href="https://example.org"></a>'
    (tmp_path / "x").mkdir()
    (tmp_path / "b.html").write_text('<h1 id="b">B</h1><a href="x/a.html"></a>', encoding="utf-8")
    (tmp_path / "x" / "p.png").touch()
    for old, new, faults in (
        ("", "", []),
        ("b.html", "c.html", ["x/a.html links to ../c.html#b"]),
        ("#b", "#c", ["x/a.html links to ../b.html#c, and there is no such anchor"]),
        ("p.png", "q.png", ["x/a.html links to q.png"]),
        ("p.png", "https://example.org/p.png", ["x/a.html loads https://example.org/p.png"]),
    ):
        (tmp_path / "x" / "a.html").write_text(good.replace(old, new), encoding="utf-8")
        assert built_faults(tmp_path) == faults
