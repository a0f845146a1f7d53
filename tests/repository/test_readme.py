"""The READMEs and the documents: what they show runs, is the same in both languages, and what they link to exists."""

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


def targets(text):
    """Yield where the links of a page lead, those of images among them."""
    plain = CODE.sub("", text)
    yield from INLINE_LINK.findall(plain)
    yield from (target for _, target in DEFINITION.findall(plain))


def menu_pages(nav):
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from menu_pages(item)


def headings(text: str) -> set[str]:
    """Return the anchors that a Markdown document's headings make."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_quickstart_runs_and_onnx_agrees(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(QUICKSTART, names)
    summary, difference = out.getvalue().splitlines()[-2:]
    assert float(difference) < 1e-6
    shown = QUICKSTART.partition("summary())  # ")[2].partition("...")[0]
    assert len(shown) > 20
    assert summary.startswith(shown)
    assert (tmp_path / "bundle" / "model.onnx").is_file()


def test_badges_name_the_supported_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    kinds = "Programming Language :: Python :: "
    pythons = [name.removeprefix(kinds) for name in project["classifiers"] if name.startswith(f"{kinds}3.")]
    (keras_from,) = (found[1] for each in project["dependencies"] if (found := re.match(r"keras>=([\d.]+)", each)))
    texts = {
        "python": f"Python: {' | '.join(pythons)}",
        "keras": f"Keras: {keras_from}+",
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
    for target in targets(text):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        linked = document.parent / name if name else document
        assert linked.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in headings(linked.read_text(encoding="utf-8")), f"{document.name} links to {target}"


def test_export_page_names_every_command():
    export = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `keras-attn (\w+)", export, flags=re.MULTILINE)) == {*command_line_page.subcommands()}


def lines_of(text: str, *, python: bool) -> list[str]:
    """Return the lines of code or commands; comments are in the language of the page, but for what is printed."""
    lines = (line for name, code in FENCES.findall(text) if (name == "python") is python for line in code.splitlines())
    return [bare for line in lines if (bare := re.sub(r"\s*(?:^|\s)# (?!all ).*$", "", line).rstrip())]


def test_chinese_readme_has_the_code_of_the_english():
    assert lines_of(CHINESE, python=True) == lines_of(README, python=True)
    assert set(lines_of(CHINESE, python=False)) <= set(lines_of(README, python=False))


# The site of docs/, which `scripts/docs` builds in strict mode.


def test_menu_has_every_page_and_reference_every_public_name_once():
    pages = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    assert sorted(menu_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])) == sorted(pages)
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


def test_patches_apply_to_the_installed_tf2onnx(tmp_path):
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


def test_pages_of_unstable_subjects_say_so_as_the_table_of_grades_does():
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
