"""What `verify.mjs` reads and refuses: arrays, golden cases, manifests and hashes, beside what NumPy and Python say."""

import hashlib
import json
import re
import zipfile

import numpy as np
import pytest
from bundles import alter_manifest, read_manifest
from npz_files import REFUSED, floats, npy, packed

from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import CASES, MODEL, NEEDED
from web import VERIFY

pytest_plugins = ("bundle_fixtures", "web_fixtures")
pytestmark = pytest.mark.web


def read(judge, file):
    return judge.ask({"does": "read", "path": str(file)})


DTYPES = [*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64", "bool"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_every_dtype(judge, file, save):
    arrays = {dtype: np.array([[0, 1, 3], [5, 7, 120]]).astype(dtype) for dtype in DTYPES}
    arrays |= {f"by column {dtype}": np.asfortranarray(array) for dtype, array in arrays.items()}
    arrays |= {"scalar": np.float32(3), "empty": np.zeros((0, 2)), "長さ/ü": np.array([-1.5])}
    save(file, **arrays)
    found = read(judge, file)
    assert [name for name, *_ in found] == list(arrays)
    for (_, dtype, shape, data), array in zip(found, arrays.values(), strict=True):
        assert (dtype, shape) == (str(array.dtype), list(array.shape))
        wanted = array.ravel().tolist()
        assert [int(each) if isinstance(each, str) else each for each in data] == wanted


def test_texts(judge, file):
    texts = np.array([["a", "", "case 長さ"], ["𝄞 two", "a\0b", "x"]])
    np.savez(file, x=texts)
    assert read(judge, file) == [["x", "<U7", [2, 3], texts.ravel().tolist()]]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_the_format(judge, file, version):
    file.write_bytes(packed(npy(np.array([1, 2], "int8"), version)))
    assert read(judge, file) == [["x", "int8", [2], [1, 2]]]


def test_an_archive_with_a_comment(judge, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("x.npy", npy(np.int8(3)))
        file.comment = b"PK\x05\x06 is how the end begins"
    assert read(judge, tmp_path / "x.npz") == [["x", "int8", [], [3]]]


@pytest.mark.parametrize("limit", ["ZIP64_LIMIT", "ZIP_FILECOUNT_LIMIT"])
def test_archives_of_64_bits(judge, tmp_path, monkeypatch, limit):
    """As beyond 4 GiB, or beyond 65535 arrays, which zipfile is told to be less."""
    monkeypatch.setattr(zipfile, limit, 2)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        for number in range(5):
            with file.open(f"{number}.npy", "w", force_zip64=True) as member:
                member.write(npy(np.array([number], "int8")))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    assert b"PK\x06\x07" in content[-42:]
    content[-14:-2] = b"\xff" * 12  # both numbers of arrays, and size and place of their list: too small for them
    (tmp_path / "x.npz").write_bytes(content)
    assert read(judge, tmp_path / "x.npz") == [[str(number), "int8", [1], [number]] for number in range(5)]


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_file_of_plain_arrays(judge, tmp_path, content, said):
    (tmp_path / "x.npz").write_bytes(content)
    answer = read(judge, tmp_path / "x.npz")
    assert re.search(said, answer["error"]), answer
    assert answer["error"].startswith("This is not an .npz file of plain arrays: ")
    assert answer["kind"] == "BundleError"


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": floats(1)}, "is not a file of golden cases: `cases` must be a list of names"),
        ({"cases": np.array([["a"]])}, "is not a file of golden cases: `cases` must be a list of names"),
        ({"cases": np.array([])}, "holds no golden case: there is nothing to compare"),
        ({"cases": np.array(["a"]), "0/rounding/x": floats(1)}, "its rounding does not fit the outputs"),
        (
            {"cases": np.array(["a"]), "0/rounding/x": floats(1), "0/outputs/x": floats(1, 2)},
            "its rounding does not fit the outputs",
        ),
    ],
    ids=["other", "table", "none", "no output", "other shape"],
)
def test_what_is_no_file_of_cases(judge, file, arrays, said):
    np.savez(file, **arrays)
    assert said in judge.ask({"path": str(file)})["error"]


@pytest.mark.parametrize("length", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 100_003])
def test_hashes_are_those_of_python(judge, without_subtle, tmp_path, length):
    content = np.random.default_rng(length).bytes(length)
    (tmp_path / "file").write_bytes(content)
    for answers in judge, without_subtle:
        assert answers.ask({"does": "hash", "path": str(tmp_path / "file")}) == hashlib.sha256(content).hexdigest()


def check(judge, bundle):
    return judge.ask({"does": "manifest", "text": (bundle / "manifest.json").read_text("ascii")})


def test_a_manifest_is_read(judge, without_subtle, exported):
    for answers in judge, without_subtle:
        assert check(answers, exported) == read_manifest(exported)


def test_every_changed_place_of_a_manifest_is_found(judge, exported):
    text = (exported / "manifest.json").read_text("ascii")
    for place in range(0, len(text), 37):
        other = text[:place] + ("x" if text[place] != "x" else "y") + text[place + 1 :]
        assert "error" in judge.ask({"does": "manifest", "text": other}), other[place - 40 : place + 40]


@pytest.mark.parametrize(
    "change",
    [lambda t: t + "\n", lambda t: t.rstrip(), lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n")],
    ids=["more", "less", "mark", "line ends"],
)
def test_other_bytes_of_the_same_manifest(judge, exported, change):
    text = change((exported / "manifest.json").read_text("ascii"))
    assert "error" in judge.ask({"does": "manifest", "text": text})


def test_a_manifest_is_ascii(judge, bundle):
    """As verify.py writes it, and takes no other: not even where the hash is right."""
    text = json.dumps(read_manifest(bundle) | {"model": "ü", "manifest_sha256": "HASH"}, indent=2, ensure_ascii=False)
    sealed = (text.partition(',\n  "manifest_sha256"')[0] + "\n}\n").encode()
    answer = judge.ask({"does": "manifest", "text": text.replace("HASH", hashlib.sha256(sealed).hexdigest()) + "\n"})
    assert "does not match its own `manifest_sha256`" in answer["error"]


@pytest.mark.parametrize("text", ["{", "[]", "3", '"text"', "{}", "null", '{"sha256": {}}', '{"schema_version": NaN}'])
def test_a_broken_manifest(judge, text):
    answer = judge.ask({"does": "manifest", "text": text})
    assert answer["error"].startswith("manifest.json is not a bundle's manifest: ")
    assert answer["kind"] == "BundleError"


COMPLEX = {"name": "x", "dtype": "complex64", "shape": []}
ENTRIES = [
    ({"schema_version": 4}, "has schema version 4; this reader knows version 3 only."),
    ({"schema_version": 2}, "has schema version 2; this reader knows version 3 only. Export the model"),
    ({"schema_version": "3"}, 'has schema version "3"; this reader knows version 3 only.'),
    ({"schema_version": None}, "has schema version null; this reader"),
    *(({name: ...}, f"is incomplete: it says nothing of {name}.") for name in NEEDED if name != "sha256"),
    ({"sha256": ...}, "is incomplete: it says nothing of sha256."),
    ({"sha256": {CASES: "0"}}, "is incomplete: it says nothing of model.onnx."),
    ({"sha256": {MODEL: 3}}, "is incomplete: it says nothing of parity/cases.npz."),
    ({"outputs": [{"name": "x"}]}, "`outputs[0].dtype` is missing"),
    ({"inputs": [COMPLEX]}, "`inputs[0].dtype` must be one of bool, int8"),
    ({"inputs": [COMPLEX | {"dtype": "bool"}] * 2}, "`inputs` has a name twice"),
    ({"multiples": {"batch": 0}}, "`multiples.batch` must be a whole number from 1 to 1048576"),
    ({"parity": None}, "`parity` must be an object"),
    ({"parity": {"tolerance": {"relative": 1}}}, "`parity.tolerance.absolute` is missing"),
    ({"lowest_onnxruntime": "1"}, "`lowest_onnxruntime` must be a version such as 1.18"),
]


@pytest.mark.parametrize(("entries", "said"), ENTRIES, ids=str)
def test_entries_of_a_manifest(judge, bundle, entries, said):
    alter_manifest(bundle, **entries)
    assert said in check(judge, bundle)["error"]


def test_the_versions_are_those_of_verify_py():
    text = VERIFY.read_text("utf-8")
    assert f"const SCHEMA_VERSION = {verify.SCHEMA_VERSION}\n" in text
    assert (verify.ROOM, verify.GROWTH) == (64 * 2**20, 100)
    assert "const ROOM = 64 * 2 ** 20\nconst GROWTH = 100\n" in text
