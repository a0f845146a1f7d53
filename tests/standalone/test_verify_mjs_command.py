"""`node verify.mjs BUNDLE`: what it prints, refuses and returns."""

import json
import os
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from bundles import alter_manifest, assert_one_line, flip_byte, read_manifest, reseal
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
    for name in (".DS_Store", "saved_model/Thumbs.db", "__pycache__/verify.pyc"):
        (bundle / name).parent.mkdir(exist_ok=True)
        (bundle / name).touch()
    before = sorted(bundle.rglob("*"))
    done = command(bundle)
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows, last = done.stdout.splitlines()
    assert header.split()[:3] == ["case", "output", "shape"]
    assert len(rows) == 2 * read_manifest(bundle)["parity"]["cases"]
    assert all(row.endswith(" ok") for row in rows)
    assert last == f"{len(rows)} of {len(rows)} outputs match on onnxruntime-node 1.30.0."
    assert sorted(bundle.rglob("*")) == before


def test_a_mismatch(bundle):
    """A good ONNX file, and sealed, which only the golden cases can tell from the right one."""
    model = onnx.load(bundle / MODEL)
    arrays = [onnx.numpy_helper.to_array(each) for each in model.graph.initializer]
    number = max(range(len(arrays)), key=lambda each: (arrays[each].dtype == "float32", arrays[each].size))
    weights = model.graph.initializer[number]
    weights.CopyFrom(onnx.numpy_helper.from_array(arrays[number] + np.float32(0.1), weights.name))
    onnx.save(model, bundle / MODEL)
    reseal(bundle, MODEL)
    done, table = command("--json", bundle), command(bundle)
    assert (done.returncode, done.stderr, table.returncode, table.stderr) == (1, "", 1, "")
    report, rows = json.loads(done.stdout), verify.replay(bundle, read_manifest(bundle))
    assert (report["passed"], report["provider"]) == (False, "onnxruntime-node 1.30.0")
    assert [(row["case"], row["name"], row["passed"]) for row in report["rows"]] == [
        (row["case"], row["name"], row["passed"]) for row in rows
    ]
    assert report["rows"][0].keys() == rows[0].keys()
    good = sum(row["passed"] for row in rows)
    assert (
        sum(line.endswith("FAILED: is outside the tolerance") for line in table.stdout.splitlines()) == len(rows) - good
    )
    assert table.stdout.endswith(f"{good} of {len(rows)} outputs match on onnxruntime-node 1.30.0.\n")


def test_what_a_stranger_has_named(bundle, tmp_path):
    """Each line is printable, and JSON is ASCII."""
    name = "x\nall 999 outputs match\x1b[2J\x7f\x9b\u202e\u200b\u2028"
    first, *others = verify.load_cases(bundle / CASES)
    verify.save_cases(bundle / CASES, [first._replace(name=name), *others])
    reseal(bundle, CASES)
    table, plain = command(bundle), command(bundle, "--json")
    assert table.stdout.splitlines()[1].startswith(
        r"x\nall 999 outputs match\x1b[2J\x7f\x9b\u202e\u200b\u2028  context"
    )
    assert all(line.isprintable() for line in table.stdout.split("\n"))
    assert plain.stdout.isascii()
    assert "\x7f" not in plain.stdout
    assert json.loads(plain.stdout)["rows"][0]["case"] == name
    nowhere = command(tmp_path / name)
    assert nowhere.stderr.startswith("error: No bundle at ")
    wrong = command(name, name)
    for said in (nowhere.stderr, wrong.stderr):
        assert all(line.isprintable() for line in said.split("\n"))
        assert len(said.splitlines()) <= 2


@pytest.mark.parametrize(
    "arguments",
    [[], ["a", "b"], ["--provider", "cuda"], ["--provider"], ["bundle", "--strict"], [""], ["--help"]],
    ids=str,
)
def test_wrong_usage_and_help(arguments):
    done = command(*arguments)
    told, other = (done.stdout, done.stderr) if arguments == ["--help"] else (done.stderr, done.stdout)
    assert (done.returncode, other) == (0 if arguments == ["--help"] else 2, "")
    assert told.startswith("usage: node verify.mjs BUNDLE [--json]\n")
    assert arguments == ["--help"] or told.splitlines()[1].startswith("error: one BUNDLE is needed")


def manifest_is_a_folder(bundle):
    (bundle / "manifest.json").unlink()
    (bundle / "manifest.json").mkdir()


def lists(name):
    """Return what lets the manifest list a file more."""
    return lambda bundle: alter_manifest(bundle, sha256=read_manifest(bundle)["sha256"] | {name: "0" * 64})


def model_is(content):
    """Return what lets the model be other bytes, and seals the bundle again."""

    def alter(bundle):
        (bundle / MODEL).write_bytes(content)
        reseal(bundle, MODEL)

    return alter


def weights_from(location):
    """Return what lets the model take weights from a file outside the bundle."""

    def alter(bundle):
        (bundle.parent / "secret").write_bytes(bytes(400))
        tensor = helper.make_tensor("w", TensorProto.FLOAT, [100], [0.0] * 100)
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        model = onnx.load(bundle / MODEL)
        model.functions.add(name="f", domain="d").node.append(helper.make_node("Constant", [], ["w"], value=tensor))
        model_is(model.SerializeToString())(bundle)

    return alter


def an_input_less(bundle):
    cases = verify.load_cases(bundle / CASES)
    del cases[0].inputs["keys"]
    verify.save_cases(bundle / CASES, cases)
    reseal(bundle, CASES)


CUT_SHORT = "model.onnx is not an ONNX file: it is cut short."
TOO_OLD = "needs onnxruntime {} or newer, and onnxruntime-node 1.30.0 is installed. Upgrade"
REFUSED = {
    "no manifest": (lambda bundle: (bundle / "manifest.json").unlink(), "it has no manifest.json."),
    "a folder": (manifest_is_a_folder, "it has no manifest.json."),
    "altered": (lambda bundle: flip_byte(bundle / "manifest.json"), "manifest.json "),
    **{
        f"lists {name!r}": (lists(name), f"lists `{name}`, which is outside the bundle.")
        for name in ("../outside", "saved_model/../../outside", "/outside", "parity//cases.npz", "", ".")
    },
    **{
        f"lists {name!r}": (lists(name), f"lists `{name}`, which onnxruntime may take for no file.")
        for name in ("*/_ORT_MEM_ADDR_/*", "inner/*/x")
    },
    "a file more": (
        lambda bundle: [(bundle / "Thumbs.db").mkdir(), (bundle / "Thumbs.db" / "more").touch()],
        "holds Thumbs.db/more, which its manifest does not list.",
    ),
    "pipe": (lambda bundle: os.mkfifo(bundle / "pipe"), "pipe is neither a file nor a folder."),
    "no model": (model_is(b""), "onnxruntime-node 1.30.0 cannot load "),
    **{str(content): (model_is(content), CUT_SHORT) for content in (b"\x08\x07\x3a\x7f", b"\x80")},
    "no protobuf": (
        model_is(b"not a model"),
        "model.onnx is not an ONNX file: a model has no field 13 of wire type 6.",
    ),
    **{
        location: (weights_from(location), f"takes weights from `{location}`, which is no file of the bundle.")
        for location in ("../secret", "secret")
    },
    "inputs": (an_input_less, "parity/cases.npz has a case `base` with inputs queries, values, valid_lens, and"),
    "1.31": (lambda bundle: alter_manifest(bundle, lowest_onnxruntime="1.31"), TOO_OLD.format("1.31")),
    "2.1": (lambda bundle: alter_manifest(bundle, lowest_onnxruntime="2.1"), TOO_OLD.format("2.1")),
}


@pytest.mark.parametrize(("alter", "said"), REFUSED.values(), ids=REFUSED)
def test_a_bundle_that_is_not_as_it_was(bundle, alter, said):
    alter(bundle)
    refused(bundle, said)


def test_files_that_are_not_as_they_were(bundle):
    for name in [*sorted(read_manifest(bundle)["sha256"])[::3], MODEL, CASES]:
        content = (bundle / name).read_bytes()
        flip_byte(bundle / name)
        refused(bundle, f"{name} is not the file that was exported: its sha256 differs")
        (bundle / name).unlink()
        refused(bundle, f"is incomplete: {name} is missing.")
        (bundle / name).write_bytes(content)


def test_links(bundle, tmp_path):
    (tmp_path / "linked").symlink_to(bundle)
    alter_manifest(bundle, lowest_onnxruntime="1.9")  # as text it would be more than 1.30
    assert command(tmp_path / "linked").returncode == 0  # the bundle itself may be linked to
    shutil.move(bundle / "parity", tmp_path / "elsewhere")
    (bundle / "parity").symlink_to(tmp_path / "elsewhere")
    refused(bundle, "parity is a symbolic link; a bundle holds files of its own only.")


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


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "onnxruntime-node is not installed in this folder. Install it with `npm"),
        ("throw new Error('no library\\nat all')", "onnxruntime-node is broken: no library"),
        (CHANGING, "model.onnx is not the file that was exported"),  # as when an export puts another bundle there
    ],
    ids=["absent", "broken", "changing the model"],
)
def test_other_runtimes(bundle, tmp_path, source, said):
    if source is not None:
        folder = tmp_path / "node_modules" / "onnxruntime-node"
        folder.mkdir(parents=True)
        real = json.dumps(str(WEB / "node_modules" / "onnxruntime-node"))
        (folder / "index.js").write_text(source.replace("REAL", real))
    refused(bundle, said, cwd=tmp_path)


def test_a_reader_that_goes_away(bundle):
    """As `head` does: there is nobody to tell."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [node_program(), VERIFY, bundle], cwd=WEB, stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


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
