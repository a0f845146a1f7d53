"""The READMEs and the documents: what they show runs, is the same in both languages, and what they link to exists."""

import contextlib
import io
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line_page import subcommands
from site_pages import CODE, DEFINITION, targets

from keras_attn_export._options import OPSETS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
FENCES = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
(QUICKSTART,) = (code for language, code in FENCES.findall(README) if language == "python")


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
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
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
    assert set(re.findall(r"^\| `keras-attn (\w+)", export, flags=re.MULTILINE)) == {*subcommands()}


def lines_of(text: str, *, python: bool) -> list[str]:
    """Return the lines of code or commands; comments are in the language of the page, but for what is printed."""
    lines = (line for name, code in FENCES.findall(text) if (name == "python") is python for line in code.splitlines())
    return [bare for line in lines if (bare := re.sub(r"\s*(?:^|\s)# (?!all ).*$", "", line).rstrip())]


def test_chinese_readme_has_the_code_of_the_english():
    assert lines_of(CHINESE, python=True) == lines_of(README, python=True)
    assert set(lines_of(CHINESE, python=False)) <= set(lines_of(README, python=False))
