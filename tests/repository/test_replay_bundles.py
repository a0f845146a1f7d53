"""scripts/replay_bundles.py with only numpy and onnxruntime: its tables, and its reports of faulty bundles."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_bundle import UNNEEDED_PACKAGES, refresh_checksum, run_python

from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES_FILE, MODEL

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "replay_bundles.py"


@pytest.fixture
def kit(exported, tmp_path):
    """Folder with two copies of a bundle, named like two forms of one layer."""
    for form in ("portable", "other"):
        shutil.copytree(exported, tmp_path / "kit" / f"small-{form}")
    return tmp_path / "kit"


def replay(kit, *options):
    """Run the script on the bundles of a kit, and return its process and its rows by bundle."""
    output = kit.parent / "replay.json"
    arguments = (*sorted(kit.iterdir()), "--output", output, "--quick", "--provider", "cpu", *options)
    process = run_python(SCRIPT, *arguments, cwd=kit.parent, blocked=UNNEEDED_PACKAGES)
    rows = json.loads(output.read_text())["bundles"] if output.exists() else []
    return process, {row["bundle"]: row for row in rows}


@pytest.mark.slow
def test_replay_reports_outputs_nodes_and_times(kit):
    process, rows = replay(kit, "--size", "2x40", "--size", "3x7")
    assert (process.returncode, process.stderr) == (0, "")
    assert [*rows] == ["small-portable", "small-other"], "the reference of the other forms comes first"
    for row in rows.values():
        assert row["problem"] is None
        assert row["outputs"] == 2 * len(load_cases(kit / row["bundle"] / CASES_FILE))
        assert row["nodes"] > 3
        assert [times["size"] for times in row["times"]] == ["2x40", "3x7"]
        assert all(0 < times["p10"] <= times["ms"] <= times["p90"] for times in row["times"])
    assert process.stdout.startswith("small-portable: passed\nsmall-other: passed\n")
    assert "\n| small-other | " in process.stdout


def change_weights(bundle):
    """Change the largest weight of a bundle, and refresh the checksum."""
    model = onnx.load(bundle / MODEL)
    largest = max(model.graph.initializer, key=lambda tensor: np.prod(tensor.dims))
    largest.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(largest) * np.float32(1.01), largest.name))
    onnx.save(model, bundle / MODEL)
    refresh_checksum(bundle, MODEL)


def append_code(bundle, code):
    """Append code to verify.py of a bundle, and refresh the checksum."""
    (bundle / "verify.py").write_text(f"{(bundle / 'verify.py').read_text()}\n{code}\n")
    refresh_checksum(bundle, "verify.py")


PASS_CHECK = "compare = lambda *_: [{'passed': True, 'of_limit': 0.0}]"
FAULTS = {
    "weights": (change_weights, "is outside the tolerance in case `"),
    "more": (lambda bundle: (bundle / "more").write_text(""), "holds more, which its manifest does not list"),
    "abort": (lambda bundle: append_code(bundle, "import os; os.abort()"), "was terminated abruptly"),
    "larger": (
        lambda bundle: (change_weights(bundle), append_code(bundle, PASS_CHECK)),
        "differs from the plain form by ",
    ),
}


@pytest.mark.slow
def test_replay_reports_each_faulty_bundle_and_continues(kit):
    for name, (change, _) in FAULTS.items():
        change(shutil.copytree(kit / "small-other", kit / f"small-{name}"))
    process, rows = replay(kit)
    assert (process.returncode, process.stderr) == (1, "")
    for name, (_, message) in FAULTS.items():
        assert message in rows[f"small-{name}"]["problem"]
        assert f"small-{name}: {rows[f'small-{name}']['problem']}\n" in process.stdout
    assert [name for name, row in rows.items() if row["problem"] is None] == ["small-portable", "small-other"]
