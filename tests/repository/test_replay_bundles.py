"""scripts/replay_bundles.py where numpy and onnxruntime are alone: what it tells, and that it tells what is wrong."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from small_bundle import PACKAGES, refresh_checksum, run_python

from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES, MODEL

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "replay_bundles.py"


@pytest.fixture
def kit(exported, tmp_path):
    """Two bundles of one layer, by name in two forms."""
    for form in ("portable", "other"):
        shutil.copytree(exported, tmp_path / "kit" / f"small-{form}")
    return tmp_path / "kit"


def replayed(kit, *options):
    output = kit.parent / "replay.json"
    arguments = (*sorted(kit.iterdir()), "--output", output, "--quick", "--provider", "cpu", *options)
    done = run_python(SCRIPT, *arguments, cwd=kit.parent, blocked=PACKAGES)
    rows = json.loads(output.read_text())["bundles"] if output.exists() else []
    return done, {row["bundle"]: row for row in rows}


@pytest.mark.slow
def test_replay_reports_outputs_nodes_and_times(kit):
    done, rows = replayed(kit, "--size", "2x40", "--size", "3x7")
    assert (done.returncode, done.stderr) == (0, "")
    assert [*rows] == ["small-portable", "small-other"], "to which the others are held comes first"
    for row in rows.values():
        assert row["problem"] is None
        assert row["outputs"] == 2 * len(load_cases(kit / row["bundle"] / CASES))
        assert row["nodes"] > 3
        assert [each["size"] for each in row["times"]] == ["2x40", "3x7"]
        assert all(0 < each["p10"] <= each["ms"] <= each["p90"] for each in row["times"])
    assert done.stdout.startswith("small-portable: passed\nsmall-other: passed\n")
    assert "\n| small-other | " in done.stdout


def weights_changed(bundle):
    """Alters the weights of a bundle, and seals it again."""
    model = onnx.load(bundle / MODEL)
    largest = max(model.graph.initializer, key=lambda each: np.prod(each.dims))
    largest.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(largest) * np.float32(1.01), largest.name))
    onnx.save(model, bundle / MODEL)
    refresh_checksum(bundle, MODEL)


def says(bundle, code):
    """Gives its verify.py more to say, and seals it again."""
    (bundle / "verify.py").write_text(f"{(bundle / 'verify.py').read_text()}\n{code}\n")
    refresh_checksum(bundle, "verify.py")


EQUAL = "compare = lambda *_: [{'passed': True, 'of_limit': 0.0}]"
FAULTS = {
    "weights": (weights_changed, "is outside the tolerance in case `"),
    "more": (lambda bundle: (bundle / "more").write_text(""), "holds more, which its manifest does not list"),
    "abort": (lambda bundle: says(bundle, "import os; os.abort()"), "was terminated abruptly"),
    "larger": (
        lambda bundle: (weights_changed(bundle), says(bundle, EQUAL)),
        "differs from the plain form by ",
    ),
}


@pytest.mark.slow
def test_replay_reports_each_faulty_bundle_and_continues(kit):
    for name, (change, _) in FAULTS.items():
        change(shutil.copytree(kit / "small-other", kit / f"small-{name}"))
    done, rows = replayed(kit)
    assert (done.returncode, done.stderr) == (1, "")
    for name, (_, told) in FAULTS.items():
        assert told in rows[f"small-{name}"]["problem"]
        assert f"small-{name}: {rows[f'small-{name}']['problem']}\n" in done.stdout
    assert [name for name, row in rows.items() if row["problem"] is None] == ["small-portable", "small-other"]
