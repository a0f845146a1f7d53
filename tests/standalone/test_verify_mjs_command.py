"""`node verify.mjs BUNDLE`: what it prints, refuses and returns."""

import json
import os
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from bundles import alter_golden_outputs, alter_manifest, assert_one_line, flip_byte, read_manifest, reseal
from onnx import TensorProto, helper

from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import CASES, MODEL
from web import VERIFY, WEB, node, node_program, project

pytest_plugins = ("bundle_fixtures",)
pytestmark = pytest.mark.web


def command(*arguments, **options):
    return node(VERIFY, *arguments, **options)


def refused(bundle, said, **options):
    """Check that a bundle is refused in one line."""
    done = command(bundle, **options)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert_one_line(done.stderr)
    assert said in done.stderr


def test_a_bundle_that_matches(bundle):
    before = sorted(bundle.rglob("*"))
    done = command(bundle)
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows, last = done.stdout.splitlines()
    assert header.split()[:3] == ["case", "output", "shape"]
    assert len(rows) == 2 * read_manifest(bundle)["parity"]["cases"]
    assert all(row.endswith(" ok") for row in rows)
    assert last == f"{len(rows)} of {len(rows)} outputs match on onnxruntime-node 1.30.0."
    assert sorted(bundle.rglob("*")) == before


def test_json(bundle):
    alter_golden_outputs(bundle)
    done = command("--json", bundle)
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    assert (report["passed"], report["provider"]) == (False, "onnxruntime-node 1.30.0")
    rows = verify.replay(bundle, read_manifest(bundle))
    assert [(row["case"], row["name"], row["passed"]) for row in report["rows"]] == [
        (row["case"], row["name"], row["passed"]) for row in rows
    ]
    assert report["rows"][0].keys() == rows[0].keys()


def test_a_mismatch(bundle):
    alter_golden_outputs(bundle)
    done = command(bundle)
    assert (done.returncode, done.stderr) == (1, "")
    assert sum(line.endswith("FAILED: is outside the tolerance") for line in done.stdout.splitlines()) == 1
    total = 2 * read_manifest(bundle)["parity"]["cases"]
    assert done.stdout.endswith(f"{total - 1} of {total} outputs match on onnxruntime-node 1.30.0.\n")


def test_a_file_of_wrong_weights(bundle):
    """A good ONNX file, and sealed, which only the golden cases can tell from the right one."""
    model = onnx.load(bundle / MODEL)
    weights = max((each for each in model.graph.initializer if each.data_type == TensorProto.FLOAT), key=len_of)
    array = onnx.numpy_helper.to_array(weights)
    weights.CopyFrom(onnx.numpy_helper.from_array(array + np.float32(0.1), weights.name))
    onnx.save(model, bundle / MODEL)
    reseal(bundle, MODEL)
    done = command(bundle)
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAILED: is outside the tolerance" in done.stdout


def len_of(tensor):
    return onnx.numpy_helper.to_array(tensor).size


@pytest.mark.parametrize(
    "arguments", [[], ["a", "b"], ["--provider", "cuda"], ["--provider"], ["bundle", "--strict"], [""]], ids=str
)
def test_wrong_usage(arguments):
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    usage, error = done.stderr.splitlines()
    assert usage == "usage: node verify.mjs BUNDLE [--json]"
    assert error.startswith("error: one BUNDLE is needed")


def test_help():
    done = command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: node verify.mjs BUNDLE [--json]\n")


def test_no_bundle(tmp_path):
    (tmp_path / "file").touch()
    for place in tmp_path, tmp_path / "nowhere", tmp_path / "file":
        refused(place, f"No bundle at {place}: it has no manifest.json.")


def test_a_manifest_that_is_a_folder(bundle):
    (bundle / "manifest.json").unlink()
    (bundle / "manifest.json").mkdir()
    refused(bundle, "EISDIR")


CHANGING = """
const fs = require('node:fs')
const real = require(REAL)
const create = async (model, options) => {
  const session = await real.InferenceSession.create(model, options)
  fs.appendFileSync(model, ' ')
  return session
}
module.exports = { ...real, InferenceSession: { create } }
"""


def test_a_model_that_changes_meanwhile(bundle, tmp_path):
    """As when an export puts another bundle there."""
    changing = tmp_path / "node_modules" / "onnxruntime-node"
    changing.mkdir(parents=True)
    real = json.dumps(str(WEB / "node_modules" / "onnxruntime-node"))
    (changing / "index.js").write_text(CHANGING.replace("REAL", real))
    refused(bundle, "model.onnx is not the file that was exported", cwd=tmp_path)


def test_a_reader_that_goes_away(bundle):
    """As `head` does: there is nobody to tell."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [node_program(), VERIFY, bundle], cwd=WEB, stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_files_that_are_not_as_they_were(bundle):
    for name in [*sorted(read_manifest(bundle)["sha256"])[::3], MODEL, CASES]:
        content = (bundle / name).read_bytes()
        flip_byte(bundle / name)
        refused(bundle, f"{name} is not the file that was exported: its sha256 differs")
        (bundle / name).unlink()
        refused(bundle, f"is incomplete: {name} is missing.")
        (bundle / name).write_bytes(content)
    (bundle / "parity" / "more").touch()
    refused(bundle, "holds parity/more, which its manifest does not list.")


def test_a_manifest_that_is_not_as_it_was(bundle):
    alter_manifest(bundle, schema_version=99)
    refused(bundle, "has schema version 99; this reader knows version 3 only.")
    alter_manifest(bundle, schema_version=verify.SCHEMA_VERSION)
    text = (bundle / "manifest.json").read_text()
    (bundle / "manifest.json").write_text(text.replace('"small"', '"small "'))
    refused(bundle, "manifest.json is not the file that was exported: it does not match its own `manifest_sha256`.")
    flip_byte(bundle / "manifest.json")
    refused(bundle, "manifest.json ")


@pytest.mark.parametrize("name", ["../outside", "saved_model/../../outside", "/outside", "parity//cases.npz", "", "."])
def test_a_listed_name_that_leads_outside(bundle, name):
    alter_manifest(bundle, sha256=read_manifest(bundle)["sha256"] | {name: "0"})
    refused(bundle, f"lists `{name}`, which is outside the bundle.")


def test_links_and_pipes(bundle, tmp_path):
    shutil.move(bundle / "parity", tmp_path / "elsewhere")
    (bundle / "parity").symlink_to(tmp_path / "elsewhere")
    refused(bundle, "parity is a symbolic link; a bundle holds files of its own only.")
    (bundle / "parity").unlink()
    shutil.move(tmp_path / "elsewhere", bundle / "parity")
    os.mkfifo(bundle / "pipe")
    refused(bundle, "pipe is neither a file nor a folder.")
    (bundle / "pipe").unlink()
    (tmp_path / "linked").symlink_to(bundle)
    assert command(tmp_path / "linked").returncode == 0  # the bundle itself may be linked to


@pytest.mark.parametrize("location", ["../secret", "secret"])
def test_weights_from_outside(bundle, location):
    (bundle.parent / "secret").write_bytes(bytes(400))
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [100], [0.0] * 100)
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    model = onnx.load(bundle / MODEL)
    model.functions.add(name="f", domain="d").node.append(helper.make_node("Constant", [], ["w"], value=tensor))
    (bundle / MODEL).write_bytes(model.SerializeToString())
    reseal(bundle, MODEL)
    refused(bundle, f"model.onnx takes weights from `{location}`, which is no file of the bundle.")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "onnxruntime-node 1.30.0 cannot load "),
        (b"not a model", "model.onnx is not an ONNX file: it is cut short."),
        (b"\x08\x07\x3a\x7f", "model.onnx is not an ONNX file: it is cut short."),
        (b"\x80", "model.onnx is not an ONNX file: it is cut short."),
    ],
)
def test_a_model_that_cannot_be_read(bundle, content, said):
    (bundle / MODEL).write_bytes(content)
    reseal(bundle, MODEL)
    refused(bundle, said)


def test_inputs_that_the_model_does_not_take(bundle):
    cases = verify.load_cases(bundle / CASES)
    del cases[0].inputs["keys"]
    verify.save_cases(bundle / CASES, cases)
    reseal(bundle, CASES)
    refused(bundle, "onnxruntime cannot run the model on inputs `queries` (")


def test_onnxruntime_is_too_old(bundle):
    alter_manifest(bundle, lowest_onnxruntime="1.31")
    refused(bundle, "needs onnxruntime 1.31 or newer, and onnxruntime-node 1.30.0 is installed. Upgrade")
    alter_manifest(bundle, lowest_onnxruntime="2.1")
    refused(bundle, "needs onnxruntime 2.1 or newer, and onnxruntime-node 1.30.0 is installed. Upgrade")
    alter_manifest(bundle, lowest_onnxruntime="1.9")  # as text it would be more than 1.30
    assert command(bundle).returncode == 0


def test_onnxruntime_is_not_installed(bundle, tmp_path):
    refused(bundle, "onnxruntime-node is not installed in this folder. Install it with `npm", cwd=tmp_path)


def test_onnxruntime_is_broken(bundle, tmp_path):
    broken = tmp_path / "node_modules" / "onnxruntime-node"
    broken.mkdir(parents=True)
    (broken / "index.js").write_text("throw new Error('no library\\nat all')")
    refused(bundle, "onnxruntime-node is broken: no library", cwd=tmp_path)


def test_a_copy_beside_its_own_node_modules(bundle, tmp_path):
    """Run from elsewhere, and through a link."""
    copied = project(tmp_path / "project") / VERIFY.name
    (tmp_path / "linked.mjs").symlink_to(copied)
    for file in copied, tmp_path / "linked.mjs":
        assert node(file, bundle, cwd=tmp_path).stdout.endswith(" match on onnxruntime-node 1.30.0.\n")


def test_importing_it_runs_nothing(tmp_path):
    """Nor does it in a page, where there is no process: it must not even name a module of Node's before."""
    (tmp_path / "main.mjs").write_text(f"import {json.dumps(VERIFY.as_uri())}\nconsole.log('done')")
    assert node(tmp_path / "main.mjs", "bundle").stdout == "done\n"
    page = "delete globalThis.process; await import(" + json.dumps(VERIFY.as_uri()) + "); console.log('done')"
    assert node("--input-type=module", "--eval", page).stdout == "done\n"


def test_it_can_stand_in_a_page():
    text = VERIFY.read_text("ascii")
    assert not [part for part in ("</script", "<script", "<!--") if part in text.lower()]
    assert "\nimport " not in text
