"""Deterministic exports: equal files in two processes with different threads, hash seeds and orders of exports."""

import json
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from environments import build_environment
from repeated_exports import EXPORTS

from keras_attn_export._onnx.traversal import iter_graphs, iter_nodes

SCRIPT = Path(__file__).with_name("repeated_exports.py")
RUN_DEPENDENT = re.compile(r"saved_model/|parity/report\.json")


def approximate(number):
    """Return a float that equals measured limits, which depend on the number of threads in the ninth digit."""
    return pytest.approx(float(number), rel=1e-6)


def run_exports(folder, threads, *options):
    variables = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"), str(threads))
    variables["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or the order of sums depends on the number of threads
    variables |= {"PYTHONHASHSEED": str(len(options)), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(SCRIPT), str(folder), *options]
    subprocess.run(command, env=build_environment(**variables), check=True, capture_output=True, timeout=1200)
    return folder


def read_stable_content(folder, name, parse_float=float):
    """Return the manifest or report without measured values and without hashes of files that differ between runs."""
    content = json.loads((folder / name).read_text(encoding="utf-8"), parse_float=parse_float)
    content.pop("manifest_sha256", None)
    hashes = content.get("sha256", {})
    content["sha256"] = {file: digest for file, digest in hashes.items() if not RUN_DEPENDENT.match(file)}
    content["warnings"] = [text for text in content.get("warnings", ()) if "times as long" not in text]
    content["precision"] = content.get("precision") if isinstance(content.get("precision"), str) else None
    return content


@pytest.mark.slow
def test_models_give_the_same_files_in_two_processes(tmp_path):
    first, second = run_exports(tmp_path / "first", 1), run_exports(tmp_path / "second", 2, "--reversed")
    for name in EXPORTS:
        files = sorted(file.relative_to(first / name).as_posix() for file in (first / name).glob("model.onnx*"))
        assert len(files) == 1 + (name == "external weights")
        for file in (*files, "parity/cases.npz"):
            assert (first / name / file).read_bytes() == (second / name / file).read_bytes(), (name, file)
        for file in ("manifest.json", "parity/report.json"):
            content = read_stable_content(first / name, file, approximate)
            assert content == read_stable_content(second / name, file), (name, file)
        assert_stable_names(first / name / "model.onnx")


def assert_stable_names(file):
    """Assert that the names in a file are unique, without counters of tf2onnx or numbers of TensorFlow functions."""
    graph = onnx.load(file, load_external_data=False).graph
    values = [name for node in iter_nodes(graph) for name in node.output if name]
    values += [tensor.name for subgraph in iter_graphs(graph) for tensor in subgraph.initializer]
    names = [node.name for node in iter_nodes(graph)]
    assert len({*values}) == len(values)
    assert len({*names}) == len(names)
    assert not [name for name in (*names, *values) if re.search(r"__\d|\d{5}|_frozen_", name)]
