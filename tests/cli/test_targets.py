"""Output paths of commands: inputs, files of other kinds and files in bundles are not replaced."""

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
from keras_attn_export._format.names import CASES_FILE, Case
from keras_attn_export._format.parity_report import ParityReport
from keras_attn_export._report.render_page import GENERATOR

COMMANDS = {  # arguments before the output path
    "run": "run bundle --inputs x.npz --outputs",
    "report": "report bundle --output",
}
WRITE_EARLIER_OUTPUT = {
    "run": lambda path: write_arrays(path, {"earlier": np.ones(2)}),
    "report": lambda path: path.write_text(f'<!doctype html>\n<meta name="generator" content="{GENERATOR}">'),
}


@pytest.fixture(scope="module")
def bundle_folder(tmp_path_factory):
    """A folder with two bundles and a file of inputs."""
    folder = tmp_path_factory.mktemp("bundles")
    vector = ("float32", ["batch"])
    for name in ("bundle", "another"):
        write_onnx_bundle(folder / name, "y = Neg(x)", {"x": vector}, {"y": vector})
        (folder / name / REPORT_FILE).write_text(ParityReport("cpu", ()).to_json())
        zeros = np.zeros(1, "float32")
        save_cases(folder / name / CASES_FILE, [Case("zeros", {"x": zeros}, {"y": zeros})])
        refresh_checksum(folder / name, REPORT_FILE)
        refresh_checksum(folder / name, CASES_FILE)
    write_arrays(folder / "x.npz", {"x": np.ones(2, "float32")})
    return folder


@pytest.fixture
def cwd(bundle_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(bundle_folder, tmp_path / "cwd"))
    return tmp_path / "cwd"


MAKE_FOREIGN_FILE = {
    "a link": lambda path: path.symlink_to("x.npz"),
    "a pipe": os.mkfifo,
    "text": lambda path: path.write_text("text"),
    "a page": lambda path: path.write_text(f"<!doctype html>\n{4096 * ' '}{GENERATOR}"),
}


def read_content(path):
    return os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "a pipe"


def assert_refused(cwd, fails, command, path, message):
    """Assert that a command fails with a message and changes no file."""
    old_contents = [read_content(file) for file in sorted(cwd.rglob("*")) if not file.is_dir()]
    fails(*COMMANDS[command].split(), path, message=message)
    assert [read_content(file) for file in sorted(cwd.rglob("*")) if not file.is_dir()] == old_contents


@pytest.mark.parametrize("command", COMMANDS)
def test_files_of_another_kind_are_not_replaced(cwd, fails, command):
    other_outputs = {f"output of {name}": write for name, write in WRITE_EARLIER_OUTPUT.items() if name != command}
    for name, write in (MAKE_FOREIGN_FILE | other_outputs).items():
        write(cwd / name)
        message = "exists and is not a file" if name in ("a link", "a pipe") else "it will not be replaced"
        assert_refused(cwd, fails, command, name, message)
    assert_refused(cwd, fails, command, "/dev/null", "exists and is not a file")


@pytest.mark.parametrize("command", COMMANDS)
def test_files_in_a_bundle_are_not_replaced(cwd, fails, command):
    (cwd / "linked").symlink_to("another")
    (cwd / "x").symlink_to("another/x")
    message = "is in a bundle, which holds only the files in its manifest"
    for bundle in ("bundle", "another", "linked", "bundle/../another"):
        for name in ("model.onnx", "manifest.json", "parity/cases.npz", "new", "parity/new"):
            assert_refused(cwd, fails, command, f"{bundle}/{name}", message)
    assert_refused(cwd, fails, command, "x", message)
    assert load_bundle(cwd / "another")


def test_input_file_is_not_replaced(cwd, fails):
    os.link("x.npz", "y.npz")
    for path in ("x.npz", "y.npz"):
        assert_refused(cwd, fails, "run", path, f"{path} is an input of this command")


@pytest.mark.parametrize("command", COMMANDS)
def test_earlier_output_is_replaced(cwd, succeeds, command):
    WRITE_EARLIER_OUTPUT[command](cwd / "out")
    old_content = read_content(cwd / "out")
    succeeds(*COMMANDS[command].split(), "out")
    assert read_content(cwd / "out") != old_content
    assert list_names(cwd) == ["another", "bundle", "out", "x.npz"]
