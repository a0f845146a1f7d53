"""The site of docs/: menu, reference, generated pages and patches; `scripts/docs` builds the site in strict mode."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path

import command_line_page
import coverage_page
import tf2onnx
import yaml
from site_pages import menu_pages, targets

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MODULES = ("keras_attn", "keras_attn.callbacks", "keras_attn.decoding", "keras_attn.migrate", "keras_attn_export")
CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_menu_has_every_page_and_reference_every_public_name_once():
    pages = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    assert sorted(menu_pages(CONFIGURATION["nav"])) == sorted(pages)
    reference = "\n".join(text for name, text in pages.items() if name.startswith("reference/"))
    public = sorted(f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__)
    assert sorted(re.findall(r"^::: (\S+)$", reference, flags=re.MULTILINE)) == public


def test_command_line_page_equals_the_parser_and_service_page_the_example():
    shown = command_line_page.PAGE.read_text(encoding="utf-8")
    assert shown == command_line_page.page(), "write it anew: python tests/repository/command_line_page.py"
    service = (ROOT / "examples" / "serve_bundle.py").read_text(encoding="utf-8")
    assert f"\n```python\n{service}```\n" in (DOCS / "serving.md").read_text(encoding="utf-8")


def test_coverage_page_counts_the_recorded_rows():
    shown = coverage_page.PAGE.read_text(encoding="utf-8")
    assert shown == coverage_page.page(), "write it anew: python tests/repository/coverage_page.py"


def test_unstable_pages_carry_the_grade_of_the_stability_table():
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


def test_tf2onnx_patches_apply_to_the_installed_version(tmp_path):
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
