"""The README and the documents: what they show runs, what they link to exists, the changelog knows the version."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_attn

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def quickstart() -> str:
    """Return the first Python block of the README."""
    block = re.search(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    assert block, "README.md has no Python block"
    return block[1]


def headings(text: str) -> set[str]:
    """Return the anchors that a Markdown document's headings make."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_quickstart_is_short():
    assert len(quickstart().splitlines()) <= 20


def test_quickstart_runs_and_onnx_agrees(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", quickstart()], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) < 1e-5
    assert (tmp_path / "bundle" / "model.onnx").is_file()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_exist(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        linked = document.parent / name if name else document
        assert linked.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in headings(linked.read_text(encoding="utf-8")), f"{document.name} links to {target}"


def test_commands_in_the_readme_exist():
    named = set(re.findall(r"^(scripts/\w+)", README, flags=re.MULTILINE)) | {".ci/run"}
    assert named >= {"scripts/demo", "scripts/test"}
    for script in named:
        assert (ROOT / script).stat().st_mode & 0o100, f"{script} is not executable"


def test_documented_commands_are_those_of_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "keras_attn_export", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    offered = set(re.findall(r"^    (\w+)  ", done.stdout, flags=re.MULTILINE))
    documented = re.findall(
        r"^\| `keras-attn (\w+)", (ROOT / "docs" / "export.md").read_text("utf-8"), flags=re.MULTILINE
    )
    assert set(documented) == offered
    assert set(re.findall(r"^\.venv/bin/keras-attn (\w+)", README, flags=re.MULTILINE)) <= offered


def test_demo_results_are_shown():
    results = re.search(r"<!-- results: begin.*?-->(.*?)<!-- results: end -->", README, flags=re.DOTALL)
    assert results, "README.md has no block of results"
    assert re.search(r"^.*held-out dates, exact: [\d.]+%", results[1], flags=re.MULTILINE), (
        "the results do not show the accuracy"
    )


def test_newest_changelog_entry_is_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d{2}-\d{2}$", changelog, flags=re.MULTILINE)
    assert versions, "CHANGELOG.md has no dated version"
    assert versions[0] == keras_attn.__version__
