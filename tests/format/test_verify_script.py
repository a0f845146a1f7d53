"""`verify.py` in a bundle: the same verdicts as the package, with numpy and onnxruntime only."""

import ast
import json
import os
import shutil
import subprocess
import sys

import pytest
from small_bundle import (
    UNNEEDED_PACKAGES,
    alter_golden_outputs,
    alter_manifest,
    assert_one_line,
    flip_bit,
    read_manifest,
    run_python,
)

from keras_attn_export import BundleError, ExportError, verify_bundle
from keras_attn_export._format.names import CASES_FILE, MODEL
from keras_attn_export._format.verify_script import verify_script

MAX_LINES = 480


def run_script(bundle, *arguments):
    return run_python(bundle / "verify.py", *arguments, cwd=bundle.parent, blocked=UNNEEDED_PACKAGES)


def test_script_is_short_and_needs_numpy_and_onnxruntime_only(bundle):
    text = verify_script()
    assert (bundle / "verify.py").read_text(encoding="utf-8") == text
    assert text.count("\n") <= MAX_LINES
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"numpy", "onnxruntime"}


def test_script_passes_without_the_package(bundle):
    old_paths = sorted(bundle.rglob("*"))
    result = run_script(bundle)
    assert (result.returncode, result.stderr) == (0, "")
    header, *rows, summary = result.stdout.splitlines()
    assert header.split()[:3] == ["case", "output", "shape"]
    assert len(rows) == 2 * read_manifest(bundle)["parity"]["cases"]
    assert all(row.endswith(" ok") for row in rows)
    assert summary == f"all {len(rows)} outputs match on CPUExecutionProvider."
    assert sorted(bundle.rglob("*")) == old_paths


def change_output(bundle):
    alter_golden_outputs(bundle)
    return "FAILED: is outside the tolerance", ExportError


def damage_cases(bundle):
    flip_bit(bundle / CASES_FILE)
    return f"{CASES_FILE} is not the file that was exported", BundleError


def remove_model(bundle):
    (bundle / MODEL).unlink()
    return f"is incomplete: {MODEL} is missing", BundleError


def add_file(bundle):
    (bundle / "notes.txt").touch()
    return "holds notes.txt, which its manifest does not list", BundleError


def reformat_manifest(bundle):
    path = bundle / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
    return "does not match its own `manifest_sha256`", BundleError


def require_newer_onnxruntime(bundle):
    alter_manifest(bundle, lowest_onnxruntime="99.0")
    return "needs onnxruntime 99.0 or newer", BundleError


def remove_entry(bundle):
    alter_manifest(bundle, parity=...)
    return "KeyError: 'parity'", BundleError


def link_folder(bundle):
    (bundle / "link").symlink_to(bundle / "saved_model")
    return "holds link, which its manifest does not list", BundleError


def write_nan(bundle):
    content = (bundle / "manifest.json").read_text(encoding="utf-8")
    (bundle / "manifest.json").write_text(content.replace('"opset": ', '"opset": NaN, "x": '), encoding="utf-8")
    return "is not a bundle's manifest (ValueError)", BundleError


def add_system_files(bundle):
    (bundle / ".DS_Store").touch()
    (bundle / "saved_model" / "Thumbs.db").touch()
    (bundle / "__pycache__").mkdir()
    (bundle / "__pycache__" / "verify.cpython-311.pyc").touch()
    return "outputs match on CPUExecutionProvider.", None


ALTERATIONS = (
    change_output,
    damage_cases,
    remove_model,
    add_file,
    reformat_manifest,
    require_newer_onnxruntime,
    remove_entry,
    pytest.param(link_folder, marks=pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")),
    write_nan,
    add_system_files,
)


@pytest.mark.parametrize("alter", ALTERATIONS, ids=lambda alter: alter.__name__)
def test_verdicts_of_script_and_package_are_equal(bundle, alter):
    message, error = alter(bundle)
    result = run_script(bundle)
    assert message in result.stdout + result.stderr
    if error is None:
        assert result.returncode == 0
        assert verify_bundle(bundle).passed
        return
    assert result.returncode == 1
    with pytest.raises(error):
        verify_bundle(bundle)
    if error is BundleError:
        assert result.stdout == ""
        assert_one_line(result.stderr)


@pytest.mark.parametrize("provider", ["cuda", "CUDAExecutionProvider"])
def test_script_names_a_missing_provider(bundle, provider):
    result = run_script(bundle, "--provider", provider)
    assert (result.returncode, result.stdout) == (1, "")
    assert_one_line(result.stderr)
    assert "has no CUDAExecutionProvider" in result.stderr


def test_unknown_provider_is_wrong_usage(bundle):
    result = run_script(bundle, "--provider", "tpu")
    assert result.returncode == 2
    assert "invalid choice: 'tpu'" in result.stderr


def test_old_python_is_named_in_one_sentence():
    text = verify_script()
    ast.parse(text, feature_version=(3, 8))  # old releases parse the whole file before they run the first line
    code = "import sys; sys.version_info = (3, 10, 12); exec(sys.stdin.read())"
    result = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "error: verify.py needs Python 3.11 or newer, and this is Python 3.10.\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX; the jobs of continuous integration on Linux run it")
def test_script_ends_quietly_if_its_output_is_closed(bundle):
    command = f"{sys.executable} {bundle / 'verify.py'}; echo $? >&2"
    result = subprocess.run(
        ["sh", "-c", f"{{ {command}; }} | true"], capture_output=True, text=True, check=False, cwd=bundle.parent
    )
    assert result.stderr == "141\n"


def test_copied_script_needs_its_bundle(bundle, tmp_path):
    shutil.copy(bundle / "verify.py", tmp_path)
    result = run_python(tmp_path / "verify.py", cwd=tmp_path, blocked=UNNEEDED_PACKAGES)
    assert result.returncode == 1
    assert "cannot read manifest.json" in result.stderr
    assert_one_line(result.stderr)
