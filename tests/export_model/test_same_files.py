"""A model gives the same files each time: in any process, after other exports, with other threads and hash seeds."""

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
OF_THE_RUN = re.compile(r"saved_model/|parity/report\.json")


def near(number):
    """Rounding, which limits are made of, is measured: with other threads it is another in the ninth digit."""
    return pytest.approx(float(number), rel=1e-6)


def exported(folder, threads, *options):
    variables = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"), str(threads))
    variables["TF_ENABLE_ONEDNN_OPTS"] = "0"  # which divides sums by the number of threads
    variables |= {"PYTHONHASHSEED": str(len(options)), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(SCRIPT), str(folder), *options]
    subprocess.run(command, env=build_environment(**variables), check=True, capture_output=True, timeout=1200)
    return folder


def told(folder, name, number=float):
    """What the manifest or the report says, without what is measured and the hashes of what differs."""
    content = json.loads((folder / name).read_text(encoding="utf-8"), parse_float=number)
    content.pop("manifest_sha256", None)
    content["sha256"] = {file: each for file, each in content.get("sha256", {}).items() if not OF_THE_RUN.match(file)}
    content["warnings"] = [each for each in content.get("warnings", ()) if "times as long" not in each]
    content["precision"] = content.get("precision") if isinstance(content.get("precision"), str) else None
    return content


@pytest.mark.slow
def test_models_give_the_same_files_in_two_processes(tmp_path):
    first, second = exported(tmp_path / "first", 1), exported(tmp_path / "second", 2, "--reversed")
    for name in EXPORTS:
        files = sorted(file.relative_to(first / name).as_posix() for file in (first / name).glob("model.onnx*"))
        assert len(files) == 1 + (name == "weights apart")
        for file in (*files, "parity/cases.npz"):
            assert (first / name / file).read_bytes() == (second / name / file).read_bytes(), (name, file)
        for file in ("manifest.json", "parity/report.json"):
            assert told(first / name, file, near) == told(second / name, file), (name, file)
        assert_telling(first / name / "model.onnx")


def assert_telling(file):
    """Check that names in a file hold no number of tf2onnx or of a function of TensorFlow, and are there once."""
    graph = onnx.load(file, load_external_data=False).graph
    values = [name for node in iter_nodes(graph) for name in node.output if name]
    values += [each.name for inner in iter_graphs(graph) for each in inner.initializer]
    names = [node.name for node in iter_nodes(graph)]
    assert len({*values}) == len(values)
    assert len({*names}) == len(names)
    assert not [name for name in (*names, *values) if re.search(r"__\d|\d{5}|_frozen_", name)]
