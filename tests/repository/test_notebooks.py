"""Examples as notebooks: format, cells run in order, and the code of the tutorial on its page."""

import re
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

pytestmark = pytest.mark.needs("jupytext")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# Minimum accuracy on held-out data, or maximum error of the forecast.
QUALITY_LIMITS = {"which_language": 0.9, "translate_numbers": 0.95, "forecast": 0.11, "digits": 0.93, "penguins": 0.93}
EXAMPLES_WITHOUT_MAIN = ("tutorial", *QUALITY_LIMITS)
NOTEBOOKS = (*EXAMPLES_WITHOUT_MAIN, "nadaraya_watson", "scoring_functions", "distributed_training")
KERNEL = ["/somewhere/ipykernel_launcher.py", "-f", "/somewhere/kernel.json"]  # command line of a kernel in Jupyter


def read_cells(name: str) -> list[str]:
    import jupytext

    notebook = jupytext.read(EXAMPLES / f"{name}.py", fmt="py:percent")
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_example_opens_as_a_notebook(name, monkeypatch):
    import jupytext
    import nbformat

    text = jupytext.writes(jupytext.read(EXAMPLES / f"{name}.py", fmt="py:percent"), fmt="ipynb")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert code == read_cells(name)
    assert not any("__file__" in cell for cell in code)  # a kernel does not define it
    if name in EXAMPLES_WITHOUT_MAIN:
        return
    received = []  # `main` gets arguments only if the script itself was started with them
    for argv in (KERNEL, [f"of/{name}.py", "--quick"], [""]):
        monkeypatch.setattr(sys, "argv", argv)
        exec(code[-1], {"__name__": "__main__", "sys": sys, "Path": Path, "main": received.append})
    assert received == [[], ["--quick"], []]


def test_tutorial_and_its_page_have_the_same_code():
    settings, *cells = read_cells("tutorial")
    assert "TF_CPP_MIN_LOG_LEVEL" in settings, "the first cell only silences TensorFlow"
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert cells == [block.strip() for block in blocks]


@pytest.mark.nightly
@pytest.mark.parametrize("name", QUALITY_LIMITS)
def test_example_learns_exports_and_draws(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for number, cell in enumerate(read_cells(name)):
        exec(compile(cell, f"cell {number}", "exec"), names)
    assert names["bundle"].report.passed
    assert imread(f"{name}.png")[..., :3].std() > 0.01
    if name == "forecast":
        assert names["error"] < QUALITY_LIMITS[name] < names["naive"]
    else:
        assert names["accuracy"] > QUALITY_LIMITS[name]
    if name == "penguins":
        assert "102 rows, 0 errors; columns known, probabilities, species" in capsys.readouterr().out
        assert {spec["dtype"] for spec in names["bundle"].manifest["inputs"]} == {"string", "float32"}
