"""Detection of changes in a bundle: bytes, files, and entries of the manifest."""

import copy
import json
import os
import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from small_bundle import alter_manifest, draw_small_inputs, read_manifest, run_python

from keras_attn_export import BundleError, load_bundle, verify_bundle
from keras_attn_export._format import manifest
from keras_attn_export._format.names import CASES_FILE, MANIFEST, MODEL


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def assert_refused(bundle: Path, message: str, load=load_bundle) -> None:
    with pytest.raises(BundleError, match=message):
        load(bundle)


@pytest.fixture
def rng(random_seed):
    return random.Random(random_seed)


def assert_detected(bundle: Path, file: Path, content: bytes, change: str) -> None:
    """Assert that a bundle with changed bytes in one file is refused, and restore the file."""
    original = file.read_bytes()
    assert content != original
    file.write_bytes(content)
    try:
        load_bundle(bundle)
    except BundleError as error:
        assert file.name in str(error), change  # noqa: PT017 - a loop over thousands of changes needs messages
    else:
        pytest.fail(f"not detected: {change}")
    file.write_bytes(original)


@pytest.mark.slow
def test_flipped_bits_are_detected_in_all_files(bundle, rng, pytestconfig):
    files = list_files(bundle)
    for _ in range(pytestconfig.getoption("--flips")):
        file = rng.choice(files)
        content = bytearray(file.read_bytes())
        position, mask = rng.randrange(len(content)), rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])
        content[position] ^= mask
        assert_detected(bundle, file, bytes(content), f"byte {position} of {file}, mask {mask}")
    load_bundle(bundle)


def test_truncated_grown_and_missing_files_are_detected(bundle, rng):
    for file in list_files(bundle):
        content = file.read_bytes()
        lengths = {0, 1, len(content) - 1, *(rng.randrange(len(content)) for _ in range(5))}
        for length in lengths - {len(content)}:
            assert_detected(bundle, file, content[:length], f"{file} of {length} bytes")
        for suffix in (b"\0", b"\n", b" ", content):
            assert_detected(bundle, file, content + suffix, f"{file} and {len(suffix)} bytes more")
        file.unlink()
        assert_refused(bundle, "is incomplete: .* is missing|No bundle at")
        file.write_bytes(content)


@pytest.mark.parametrize(
    "reformat",
    [
        lambda manifest: json.dumps(manifest),
        lambda manifest: json.dumps(manifest, indent=2).replace("\n", "\r\n") + "\n",
        lambda manifest: json.dumps(manifest, indent=2).replace('"opset": 18', '"opset": 1,\n  "opset": 18') + "\n",
    ],
    ids=["compact", "windows", "a key twice"],
)
def test_manifest_in_another_form_is_refused(bundle, reformat):
    (bundle / MANIFEST).write_bytes(reformat(read_manifest(bundle)).encode())
    assert_refused(bundle, "does not match its own `manifest_sha256`")


def test_moved_bundle_with_files_of_file_managers_passes(bundle, tmp_path):
    shutil.rmtree(bundle / "saved_model" / "assets")  # git and zip keep no empty folder
    (bundle / "empty").mkdir()
    for name in (".DS_Store", "saved_model/Thumbs.db", "__pycache__/verify.cpython-311.pyc"):
        (bundle / name).parent.mkdir(exist_ok=True)
        (bundle / name).touch()
    shutil.move(bundle, tmp_path / "elsewhere")
    (tmp_path / "latest").symlink_to("elsewhere")
    assert verify_bundle(tmp_path / "latest").passed


def write_manifest(text):
    return lambda bundle: (bundle / MANIFEST).write_bytes(text)


def set_entries(**changes):
    """Return a function that sets entries of the manifest with its checksum; `...` removes an entry."""
    return lambda bundle: alter_manifest(bundle, **changes)


def add_file(name):
    def alter(bundle):
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).touch()

    return alter


def replace_file(name, create):
    def alter(bundle):
        (bundle / name).unlink()
        create(bundle / name)

    return alter


NO_MANIFEST = r"manifest\.json is not a bundle's manifest"
UNREADABLE_MANIFESTS = (b"{", b"[]", b"{}", b"[" * 10**5, b"\xff\xfe")
REQUIRED_ENTRIES = ("inputs", "sha256", "model")
INVALID_VERSIONS = (None, 1.18, "1.18.0", "1.\N{ARABIC-INDIC DIGIT ONE}")
EXTRA_FILES = ("extra", "saved_model/assets/extra", ".hidden", "Thumbs.db/folder/x", "__pycache__")


def exchange(bundle):
    """Exchange the contents of two files, whose hashes are both in the manifest."""
    for old, new in ((MODEL, "aside"), (CASES_FILE, MODEL), ("aside", CASES_FILE)):
        (bundle / old).rename(bundle / new)


ALTERATIONS = [  # a function that alters a bundle, message
    (shutil.rmtree, "No bundle at .*bundle"),
    (lambda bundle: (bundle / MANIFEST).unlink(), r"No bundle at .*: cannot read manifest\.json"),
    *((write_manifest(text), NO_MANIFEST) for text in UNREADABLE_MANIFESTS),
    *(
        (set_entries(schema_version=version), rf"has schema version {version!r}, and this reader needs 3")
        for version in (2, 4, "3", None)
    ),
    *((set_entries(**{name: ...}), rf"incomplete: it has no entry for {name}\b") for name in REQUIRED_ENTRIES),
    (set_entries(sha256={CASES_FILE: "0"}), rf"incomplete: it has no entry for {MODEL}\."),
    *(
        (set_entries(multiples={"batch": step}), rf"{NO_MANIFEST}: `multiples\.batch` must be an integer of 1 or more")
        for step in (0, "8")
    ),
    (set_entries(multiples=[8]), rf"{NO_MANIFEST}: `multiples` must be an object"),
    *(
        (set_entries(inputs=[{"name": "x", "dtype": "int8", "shape": [], **fields}]), rf"`inputs\[0\]\.{message}")
        for fields, message in (
            ({"dtype": "bfloat16"}, r"dtype` must be one of bool, int8"),
            ({"shape": [-1]}, r"shape\[0\]` must be a size of 0 or more or the name of an axis"),
            ({"name": ""}, "name` must be a name"),
        )
    ),
    (set_entries(outputs=[]), "`outputs` must not be empty"),
    (set_entries(layers=[{"name": "x"}]), r"`layers\[0\]\.class` is missing"),
    (set_entries(precision=7), f"{NO_MANIFEST}: `precision"),
    *(
        (set_entries(parity={"tolerance": value}), rf"`parity\.tolerance\.relative` {message}")
        for value, message in (({}, "is missing"), ({"relative": -1, "absolute": 0}, "must be a number of 0 or more"))
    ),
    *((set_entries(lowest_onnxruntime=value), "`lowest_onnxruntime` must be a version") for value in INVALID_VERSIONS),
    *((add_file(name), rf"bundle holds {name}, which its manifest does not list") for name in EXTRA_FILES),
    (replace_file(MODEL, os.mkdir), r"incomplete: model\.onnx is missing"),
    (exchange, "is not the file that was exported"),
]


def test_altered_bundles_are_refused(exported, tmp_path):
    for number, (alter, message) in enumerate(ALTERATIONS):
        bundle = shutil.copytree(exported, tmp_path / str(number) / "bundle")
        alter(bundle)
        for load in load_bundle, manifest.read_manifest:
            assert_refused(bundle, message, load)
    assert_refused(exported / MODEL, "No bundle at")


def test_copied_bundles_open_new_sessions(exported):
    bundle = load_bundle(exported)
    expected = bundle.run(draw_small_inputs())
    for duplicate in (copy.deepcopy(bundle), pickle.loads(pickle.dumps(bundle))):
        assert duplicate == bundle
        assert duplicate.session() is not bundle.session()
        np.testing.assert_array_equal(duplicate.run(draw_small_inputs())["context"], expected["context"])


@pytest.mark.parametrize(
    ("installed", "lowest"),
    [("1.9.0", "1.14"), ("1.17.0.dev20240101", "1.18"), ("1.31.1", "1.100")],
)
def test_bundle_refuses_an_onnxruntime_that_is_too_old(bundle, monkeypatch, installed, lowest):
    alter_manifest(bundle, lowest_onnxruntime=lowest)
    for version in (f"{lowest}.0", f"{lowest}.0rc1", f"{lowest}1.0", "3.0.0", "unknown"):
        monkeypatch.setattr(onnxruntime, "__version__", version)
        load_bundle(bundle)
    monkeypatch.setattr(onnxruntime, "__version__", installed)
    message = rf"bundle needs onnxruntime {lowest} or newer, and {installed} is installed\. Upgrade"
    for load in load_bundle, verify_bundle:
        assert_refused(bundle, message, load)


def test_bundle_loads_without_onnxruntime(bundle, tmp_path):
    code = f"from keras_attn_export import load_bundle; print(load_bundle({str(bundle)!r}).manifest['opset'])"
    result = run_python("-c", code, cwd=tmp_path, blocked=["onnxruntime"])
    assert (result.returncode, result.stdout, result.stderr) == (0, "18\n", "")
