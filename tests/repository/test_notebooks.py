"""The examples that are read open as notebooks, and their cells run in order; the tutorial's are those of its page."""

import re
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from bundles import PACKAGES, python

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
NOTEBOOKS = ("tutorial", "nadaraya_watson", "scoring_functions", "translate_step_by_step", "distributed_training")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
KERNEL = ["/somewhere/ipykernel_launcher.py", "-f", "/somewhere/kernel.json"]  # what Jupyter starts its kernel with


def cells_of(name: str, kind: str = "code") -> list[str]:
    notebook = jupytext.read(EXAMPLES / f"{name}.py", fmt="py:percent")
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def blocks_of_page() -> list[str]:
    return [block.strip() for block in re.findall(r"^```python\n(.*?)^```", TUTORIAL, flags=re.MULTILINE | re.DOTALL)]


@pytest.fixture
def run_cells(tmp_path, monkeypatch):
    """Run a notebook's cells in one namespace, in an empty folder, as the program that `argv` says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)  # a notebook finds what lies beside it

    def run(name: str, argv: list[str]) -> dict[str, object]:
        monkeypatch.setattr(sys, "argv", argv)
        names: dict[str, object] = {"__name__": "__main__"}
        for number, cell in enumerate(cells_of(name)):
            exec(compile(cell, f"{name}, cell {number}", "exec"), names)
        return names

    return run


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_a_notebook_that_begins_with_what_it_is(name):
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert text.startswith('# %% [markdown]\n"""'), "the docstring is the first cell"
    prose, code = cells_of(name, "markdown"), cells_of(name)
    assert len(prose) >= 4
    assert len(code) >= 5
    assert not prose[0].startswith('"""')
    assert all(cell.strip() for cell in prose + code)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_jupyter_takes_it(name):
    notebook = nbformat.reads(jupytext.writes(jupytext.read(EXAMPLES / f"{name}.py"), fmt="ipynb"), as_version=4)
    nbformat.validate(notebook)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert code == cells_of(name)


# The tutorial.


def test_the_tutorial_and_its_page_have_the_same_code():
    settings, *cells = cells_of("tutorial")
    assert "TF_CPP_MIN_LOG_LEVEL" in settings, "the first cell only quiets TensorFlow"
    assert cells == blocks_of_page()


@pytest.mark.documents
def test_the_tutorial_runs_and_its_last_cell_needs_onnxruntime_alone(run_cells, tmp_path, capsys):
    names = run_cells("tutorial", KERNEL)
    printed = capsys.readouterr().out
    assert "100.0% of the prices are right to the cent" in printed
    assert printed.count("True\n") == 2, "neither NaN in the padding nor a reload changes a bit"
    assert names["bundle"].report.passed
    for file in ("weights.png", "receipts.keras", "bundle/model.onnx"):
        assert (tmp_path / file).is_file()
    served = python("-c", cells_of("tutorial")[-1], cwd=tmp_path, blocked=PACKAGES)
    assert (served.returncode, served.stdout) == (0, "[[[4.25]]] [[[0. 1. 0.]]]\n"), served.stderr
    verified = python("bundle/verify.py", cwd=tmp_path, blocked=PACKAGES)
    assert verified.returncode == 0, verified.stderr


# The others.


@pytest.mark.documents
def test_nadaraya_watson_runs_with_the_arguments_of_a_kernel(run_cells, tmp_path, capsys):
    run_cells("nadaraya_watson", KERNEL)
    assert "learned" in capsys.readouterr().out
    assert (tmp_path / "artifacts" / "nadaraya_watson.png").is_file()


@pytest.mark.out_of_turn
@pytest.mark.parametrize("name", ["scoring_functions", "translate_step_by_step"])
def test_the_long_ones_run_with_arguments_of_their_own(run_cells, tmp_path, name):
    run_cells(name, [str(EXAMPLES / f"{name}.py"), "--quick", "--out", str(tmp_path / "out")])
    assert sorted((tmp_path / "out").glob("*.png"))


@pytest.mark.parametrize("name", NOTEBOOKS[1:])
@pytest.mark.parametrize(("argv", "expected"), [(KERNEL, []), (["of/{name}.py", "--quick"], ["--quick"]), ([""], [])])
def test_arguments_are_taken_from_the_scripts_own_command_line_alone(monkeypatch, name, argv, expected):
    received = []
    monkeypatch.setattr(sys, "argv", [argument.format(name=name) for argument in argv])
    names = {"__name__": "__main__", "sys": sys, "Path": Path, "main": received.append}
    exec(cells_of(name)[-1], names)
    assert received == [expected]
