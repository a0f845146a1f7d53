"""Targets of commands: no file of another kind, no input and no file in a bundle is replaced."""

import os
import shutil

import numpy as np
import pytest
from handwritten_bundles import write_onnx_bundle
from small_bundle import list_names, refresh_checksum

from keras_attn_export import load_bundle
from keras_attn_export._bundle.untrusted_input import REPORT_FILE
from keras_attn_export._cli.run import write_arrays
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.names import CASES, Case
from keras_attn_export._format.parity_report import ParityReport
from keras_attn_export._report.render_page import GENERATOR

COMMANDS = {  # what is given before the place
    "run": "run bundle --inputs x.npz --outputs",
    "report": "report bundle --output",
}
OF_ITS_KIND = {
    "run": lambda place: write_arrays(place, {"earlier": np.ones(2)}),
    "report": lambda place: place.write_text(f'<!doctype html>\n<meta name="generator" content="{GENERATOR}">'),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with two bundles, and inputs."""
    folder = tmp_path_factory.mktemp("made")
    vector = ("float32", ["batch"])
    for name in ("bundle", "another"):
        write_onnx_bundle(folder / name, "y = Neg(x)", {"x": vector}, {"y": vector})
        (folder / name / REPORT_FILE).write_text(ParityReport("cpu", ()).to_json())
        zeros = np.zeros(1, "float32")
        save_cases(folder / name / CASES, [Case("zeros", {"x": zeros}, {"y": zeros})])
        refresh_checksum(folder / name, REPORT_FILE)
        refresh_checksum(folder / name, CASES)
    write_arrays(folder / "x.npz", {"x": np.ones(2, "float32")})
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "here"))
    return tmp_path / "here"


NOT_TO_BE_REPLACED = {
    "a link": lambda place: place.symlink_to("x.npz"),
    "a pipe": os.mkfifo,
    "text": lambda place: place.write_text("text"),
    "a page": lambda place: place.write_text(f"<!doctype html>\n{4096 * ' '}{GENERATOR}"),
}


def content_of(place):
    return os.readlink(place) if place.is_symlink() else place.read_bytes() if place.is_file() else "a pipe"


def refused(here, fails, command, place, said):
    before = [content_of(each) for each in sorted(here.rglob("*")) if not each.is_dir()]
    fails(*COMMANDS[command].split(), place, said=said)
    assert [content_of(each) for each in sorted(here.rglob("*")) if not each.is_dir()] == before


@pytest.mark.parametrize("command", COMMANDS)
def test_files_of_another_kind_are_not_replaced(here, fails, command):
    others = {f"what {name} writes": make for name, make in OF_ITS_KIND.items() if name != command}
    for name, make in (NOT_TO_BE_REPLACED | others).items():
        make(here / name)
        no_file = name in ("a link", "a pipe")
        refused(here, fails, command, name, "exists and is not a file" if no_file else "it will not be replaced")
    refused(here, fails, command, "/dev/null", "exists and is not a file")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_file_in_a_bundle_is_a_target(here, fails, command):
    (here / "linked").symlink_to("another")
    (here / "x").symlink_to("another/x")
    for bundle in ("bundle", "another", "linked", "bundle/../another"):
        for name in ("model.onnx", "manifest.json", "parity/cases.npz", "new", "parity/new"):
            refused(
                here, fails, command, f"{bundle}/{name}", "is in a bundle, which holds only the files in its manifest"
            )
    refused(here, fails, command, "x", "is in a bundle, which holds only the files in its manifest")
    assert load_bundle(here / "another")


def test_input_file_is_no_target(here, fails):
    os.link("x.npz", "y.npz")
    for place in ("x.npz", "y.npz"):
        refused(here, fails, "run", place, f"{place} is an input of this command")


@pytest.mark.parametrize("command", COMMANDS)
def test_earlier_output_is_replaced(here, succeeds, command):
    OF_ITS_KIND[command](here / "out")
    before = content_of(here / "out")
    succeeds(*COMMANDS[command].split(), "out")
    assert content_of(here / "out") != before
    assert list_names(here) == ["another", "bundle", "out", "x.npz"]
