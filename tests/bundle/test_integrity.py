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
from keras_attn_export._format.names import CASES, MANIFEST, MODEL


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def refused(bundle: Path, said: str, load=load_bundle) -> None:
    with pytest.raises(BundleError, match=said):
        load(bundle)


@pytest.fixture
def rng(random_seed):
    return random.Random(random_seed)


def assert_found(bundle: Path, file: Path, content: bytes, what: str) -> None:
    """Check that a bundle with other bytes in one file is refused, and put the right ones back."""
    original = file.read_bytes()
    assert content != original
    file.write_bytes(content)
    try:
        load_bundle(bundle)
    except BundleError as error:
        assert file.name in str(error), what  # noqa: PT017 - a loop of a thousand, each with its own message
    else:
        pytest.fail(f"not found: {what}")
    file.write_bytes(original)


@pytest.mark.slow
def test_flipped_bits_anywhere_are_found(bundle, rng, pytestconfig):
    files = files_of(bundle)
    for _ in range(pytestconfig.getoption("--flips")):
        file = rng.choice(files)
        content = bytearray(file.read_bytes())
        position, mask = rng.randrange(len(content)), rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])
        content[position] ^= mask
        assert_found(bundle, file, bytes(content), f"byte {position} of {file}, mask {mask}")
    load_bundle(bundle)


def test_truncated_grown_and_missing_files_are_found(bundle, rng):
    for file in files_of(bundle):
        content = file.read_bytes()
        lengths = {0, 1, len(content) - 1, *(rng.randrange(len(content)) for _ in range(5))}
        for length in lengths - {len(content)}:
            assert_found(bundle, file, content[:length], f"{file} of {length} bytes")
        for more in (b"\0", b"\n", b" ", content):
            assert_found(bundle, file, content + more, f"{file} and {len(more)} bytes more")
        file.unlink()
        refused(bundle, "is incomplete: .* is missing|No bundle at")
        file.write_bytes(content)


@pytest.mark.parametrize(
    "other",
    [
        lambda manifest: json.dumps(manifest),
        lambda manifest: json.dumps(manifest, indent=2).replace("\n", "\r\n") + "\n",
        lambda manifest: json.dumps(manifest, indent=2).replace('"opset": 18', '"opset": 1,\n  "opset": 18') + "\n",
    ],
    ids=["compact", "windows", "a key twice"],
)
def test_manifest_in_another_form_is_refused(bundle, other):
    (bundle / MANIFEST).write_bytes(other(read_manifest(bundle)).encode())
    refused(bundle, "does not match its own `manifest_sha256`")


def test_moves_empty_folders_and_files_of_file_managers_are_no_damage(bundle, tmp_path):
    shutil.rmtree(bundle / "saved_model" / "assets")  # git and zip keep no empty folder
    (bundle / "empty").mkdir()
    for name in (".DS_Store", "saved_model/Thumbs.db", "__pycache__/verify.cpython-311.pyc"):
        (bundle / name).parent.mkdir(exist_ok=True)
        (bundle / name).touch()
    shutil.move(bundle, tmp_path / "elsewhere")
    (tmp_path / "latest").symlink_to("elsewhere")
    assert verify_bundle(tmp_path / "latest").passed


def manifest_is(text):
    return lambda bundle: (bundle / MANIFEST).write_bytes(text)


def entries(**changed):
    """Return what sets entries of the manifest, and seals it again; `...` removes one."""
    return lambda bundle: alter_manifest(bundle, **changed)


def with_file(name):
    def alter(bundle):
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).touch()

    return alter


def in_place_of(name, make):
    def alter(bundle):
        (bundle / name).unlink()
        make(bundle / name)

    return alter


NO_MANIFEST = r"manifest\.json is not a bundle's manifest"
UNREADABLE = (b"{", b"[]", b"{}", b"[" * 10**5, b"\xff\xfe")
NEEDED = ("inputs", "sha256", "model")
VERSIONS = (None, 1.18, "1.18.0", "1.\N{ARABIC-INDIC DIGIT ONE}")
MORE = ("extra", "saved_model/assets/extra", ".hidden", "Thumbs.db/folder/x", "__pycache__")


def exchange(bundle):
    """Exchange the contents of two files, whose hashes are both in the manifest."""
    for old, new in ((MODEL, "aside"), (CASES, MODEL), ("aside", CASES)):
        (bundle / old).rename(bundle / new)


REFUSED = [  # what is done to a bundle, and what is said of it
    (shutil.rmtree, "No bundle at .*bundle"),
    (lambda bundle: (bundle / MANIFEST).unlink(), r"No bundle at .*: cannot read manifest\.json"),
    *((manifest_is(text), NO_MANIFEST) for text in UNREADABLE),
    *(
        (entries(schema_version=version), rf"has schema version {version!r}, and this reader needs 3")
        for version in (2, 4, "3", None)
    ),
    *((entries(**{name: ...}), rf"incomplete: it has no entry for {name}\b") for name in NEEDED),
    (entries(sha256={CASES: "0"}), rf"incomplete: it has no entry for {MODEL}\."),
    *(
        (entries(multiples=each), rf"{NO_MANIFEST}: `multiples{said}")
        for each, said in (
            *(({"batch": step}, r"\.batch` must be an integer of 1 or more") for step in (0, "8")),
            *((each, "` must be an object") for each in ([8],)),
        )
    ),
    *(
        (entries(inputs=[{"name": "x", "dtype": "int8", "shape": [], **odd}]), rf"`inputs\[0\]\.{said}")
        for odd, said in (
            ({"dtype": "bfloat16"}, r"dtype` must be one of bool, int8"),
            ({"shape": [-1]}, r"shape\[0\]` must be a size of 0 or more or the name of an axis"),
            ({"name": ""}, "name` must be a name"),
        )
    ),
    (entries(outputs=[]), "`outputs` must not be empty"),
    (entries(layers=[{"name": "x"}]), r"`layers\[0\]\.class` is missing"),
    (entries(precision=7), f"{NO_MANIFEST}: `precision"),
    *(
        (entries(parity={"tolerance": each}), rf"`parity\.tolerance\.relative` {said}")
        for each, said in (({}, "is missing"), ({"relative": -1, "absolute": 0}, "must be a number of 0 or more"))
    ),
    *((entries(lowest_onnxruntime=each), "`lowest_onnxruntime` must be a version") for each in VERSIONS),
    *((with_file(name), rf"bundle holds {name}, which its manifest does not list") for name in MORE),
    (in_place_of(MODEL, os.mkdir), r"incomplete: model\.onnx is missing"),
    (exchange, "is not the file that was exported"),
]


def test_altered_bundles_are_refused(exported, tmp_path):
    for number, (alter, said) in enumerate(REFUSED):
        bundle = shutil.copytree(exported, tmp_path / str(number) / "bundle")
        alter(bundle)
        for load in load_bundle, manifest.read_manifest:
            refused(bundle, said, load)
    refused(exported / MODEL, "No bundle at")


def test_copies_open_sessions_of_their_own(exported):
    bundle = load_bundle(exported)
    wanted = bundle.run(draw_small_inputs())
    for other in (copy.deepcopy(bundle), pickle.loads(pickle.dumps(bundle))):
        assert other == bundle
        assert other.session() is not bundle.session()
        np.testing.assert_array_equal(other.run(draw_small_inputs())["context"], wanted["context"])


@pytest.mark.parametrize(
    ("installed", "lowest"),
    [("1.9.0", "1.14"), ("1.17.0.dev20240101", "1.18"), ("1.31.1", "1.100")],
)
def test_bundle_refuses_an_onnxruntime_that_is_too_old(bundle, monkeypatch, installed, lowest):
    alter_manifest(bundle, lowest_onnxruntime=lowest)
    for enough in (f"{lowest}.0", f"{lowest}.0rc1", f"{lowest}1.0", "3.0.0", "unknown"):
        monkeypatch.setattr(onnxruntime, "__version__", enough)
        load_bundle(bundle)
    monkeypatch.setattr(onnxruntime, "__version__", installed)
    for load in load_bundle, verify_bundle:
        refused(bundle, rf"bundle needs onnxruntime {lowest} or newer, and {installed} is installed\. Upgrade", load)


def test_bundle_loads_without_onnxruntime(bundle, tmp_path):
    code = f"from keras_attn_export import load_bundle; print(load_bundle({str(bundle)!r}).manifest['opset'])"
    done = run_python("-c", code, cwd=tmp_path, blocked=["onnxruntime"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "18\n", "")
