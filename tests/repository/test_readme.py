"""READMEs and documents: code that runs, equal code in both languages, links, and generated pages."""

import contextlib
import importlib
import io
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import command_line_page
import coverage_page
import pytest
import tf2onnx
import yaml

from keras_attn_export._options import OPSETS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
MODULES = ("keras_attn", "keras_attn.callbacks", "keras_attn.decoding", "keras_attn.migrate", "keras_attn_export")
CODE = re.compile(r"^(`{3,}).*?^\1$|<!--.*?-->|`[^`\n]+`", flags=re.MULTILINE | re.DOTALL)
INLINE_LINK = re.compile(r"\]\(([^)\s]+)\)")
DEFINITION = re.compile(r"^\[([^\]]+)\]: (\S+)$", flags=re.MULTILINE)
FENCES = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
(QUICKSTART,) = (code for language, code in FENCES.findall(README) if language == "python")


def find_targets(text):
    """Yield the targets of the links and images of a page."""
    prose = CODE.sub("", text)
    yield from INLINE_LINK.findall(prose)
    yield from (target for _, target in DEFINITION.findall(prose))


def list_pages(nav):
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from list_pages(entry)


def build_anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a Markdown document."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_quickstart_runs_and_onnx_agrees(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(QUICKSTART, names)
    summary, difference = out.getvalue().splitlines()[-2:]
    assert float(difference) < 1e-6
    printed = QUICKSTART.partition("summary())  # ")[2].partition("...")[0]
    assert len(printed) > 20
    assert summary.startswith(printed)
    assert (tmp_path / "bundle" / "model.onnx").is_file()


def test_badges_name_the_supported_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: "
    pythons = [name.removeprefix(prefix) for name in project["classifiers"] if name.startswith(f"{prefix}3.")]
    (lowest_keras,) = re.findall(r"^keras>=([\d.]+)", "\n".join(project["dependencies"]), flags=re.MULTILINE)
    texts = {
        "python": f"Python: {' | '.join(pythons)}",
        "keras": f"Keras: {lowest_keras}+",
        "onnx": f"ONNX: opset {OPSETS[0]} to {OPSETS[-1]}",
        "licence": f"licence: {project['license']}",
    }
    for name, text in texts.items():
        assert text in (ROOT / "docs" / "badges" / f"{name}.svg").read_text(encoding="utf-8")
        assert all(f"![{text}](docs/badges/{name}.svg)" in readme for readme in (README, CHINESE))


def test_index_page_lists_the_extras_of_the_project():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("[project.optional-dependencies]")[2].partition("# For contributors")[0]
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| (`\[.*?) \|", index, flags=re.MULTILINE))
    extras = re.findall(r"^(\w+) = ", section, flags=re.MULTILINE)
    assert sorted(re.findall(r"\[(\w+)\]", rows)) == sorted(extras)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_exist(document):
    text = document.read_text(encoding="utf-8")
    assert set(re.findall(r"\]\[([^\]]+)\]", CODE.sub("", text))) <= {name for name, _ in DEFINITION.findall(text)}
    for target in find_targets(text):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        linked = document.parent / name if name else document
        assert linked.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in build_anchors(linked.read_text(encoding="utf-8")), f"{document.name} links to {target}"


def test_export_page_names_every_command():
    export = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?m)^\| `keras-attn (\w+)", export)) == {*command_line_page.list_subcommands()}


def read_code_lines(text: str, *, python: bool) -> list[str]:
    """Return the lines of code or commands, without comments in the language of the page; printed output stays."""
    lines = (line for name, code in FENCES.findall(text) if (name == "python") is python for line in code.splitlines())
    return [code for line in lines if (code := re.sub(r"\s*(?:^|\s)# (?!all ).*$", "", line).rstrip())]


def test_chinese_readme_has_the_code_of_the_english():
    assert read_code_lines(CHINESE, python=True) == read_code_lines(README, python=True)
    assert set(read_code_lines(CHINESE, python=False)) <= set(read_code_lines(README, python=False))


def test_menu_has_every_page_and_reference_every_public_name_once():
    pages = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    assert sorted(list_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])) == sorted(pages)
    reference = "\n".join(text for name, text in pages.items() if name.startswith("reference/"))
    public = sorted(f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__)
    assert sorted(re.findall(r"^::: (\S+)$", reference, flags=re.MULTILINE)) == public


def test_command_line_page_equals_the_parser_and_service_page_the_example():
    text = command_line_page.PAGE.read_text(encoding="utf-8")
    assert text == command_line_page.build_page(), "update it: python tests/repository/command_line_page.py"
    service = (ROOT / "examples" / "serve_bundle.py").read_text(encoding="utf-8")
    assert f"\n```python\n{service}```\n" in (DOCS / "serving.md").read_text(encoding="utf-8")


def test_coverage_page_counts_the_recorded_rows():
    text = coverage_page.PAGE.read_text(encoding="utf-8")
    assert text == coverage_page.build_page(), "update it: python tests/repository/coverage_page.py"


def test_patches_apply_to_the_installed_tf2onnx(tmp_path):
    """If a patch does not apply, tf2onnx has accepted it, or it needs an update; see docs/upstream.md."""
    shutil.copytree(Path(tf2onnx.__file__).parent, tmp_path / "tf2onnx", ignore=shutil.ignore_patterns("__pycache__"))
    patches = sorted((DOCS / "upstream").glob("*.patch"))
    linked = [DOCS / target for target in find_targets((DOCS / "upstream.md").read_text(encoding="utf-8"))]
    assert patches == sorted(path for path in linked if path.suffix == ".patch")
    for patch in patches:
        process = subprocess.run(
            ["git", "apply", "--check", str(patch)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr


def test_notes_of_unstable_pages_equal_the_table_of_grades():
    table_grades = {}
    for row in (DOCS / "stability.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\|[^|]+\| (evolving|experimental) \|", row):
            for page in find_targets(row):
                table_grades.setdefault(page, set()).add(match[1])
    page_grades = {}
    for path in DOCS.rglob("*.md"):
        note = re.match(r"# .+\n\n((?:.+\n)+)", path.read_text(encoding="utf-8"))
        if grades := set(re.findall(r"\*\*(Evolving|Experimental)\*\*", note[1] if note else "")):
            page_grades[path.relative_to(DOCS).as_posix()] = {grade.lower() for grade in grades}
    assert page_grades == table_grades
