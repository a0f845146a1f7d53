"""Untrusted bundles: refused in one line before NumPy or onnxruntime reads the file."""

import io
import os
import re
import shutil
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_bundle import alter_manifest, draw_small_inputs, read_manifest, refresh_checksum

from keras_attn_export import BundleError, load_bundle, verify_bundle
from keras_attn_export._bundle import untrusted_input
from keras_attn_export._bundle.untrusted_input import REPORT_FILE
from keras_attn_export._format.array_files import read_arrays
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.files import sha256
from keras_attn_export._format.names import CASES_FILE, MANIFEST, MODEL


def assert_refused(bundle, message, readers=(load_bundle, verify_bundle)):
    for read in readers:
        with pytest.raises(BundleError, match=message) as error:
            read(bundle)
        assert "\n" not in str(error.value)


def replace_by_link(name):
    """Return a function that replaces a part of a bundle by a link to it."""

    def alter(bundle):
        shutil.move(bundle / name, bundle.with_name("outside"))
        (bundle / name).symlink_to(bundle.with_name("outside"))

    return alter


def replace_file(name, create):
    def alter(bundle):
        (bundle / name).unlink()
        create(bundle / name)

    return alter


def grow(file):
    file.touch()
    os.truncate(file, 2**24 + 1)


ALTERATIONS = {
    **{f"link {name}": (replace_by_link(name), "a symbolic link") for name in (MANIFEST, MODEL, "saved_model")},
    "link to nowhere": (lambda bundle: (bundle / "link").symlink_to("nowhere"), "link is a symbolic link"),
    "pipe": (replace_file(MODEL, os.mkfifo), r"model\.onnx is not a regular file"),
    "pipe for JSON": (replace_file(MANIFEST, os.mkfifo), r"manifest\.json is not a regular file"),
    "large manifest": (replace_file(MANIFEST, grow), r"manifest\.json must have at most .* Received: 16777217 bytes"),
    "large report": (replace_file(REPORT_FILE, grow), r"report\.json must have at most .* Received: 16777217 bytes"),
}


@pytest.mark.parametrize(("alter", "message"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_links_pipes_and_large_json_are_refused(bundle, alter, message):
    alter(bundle)
    assert_refused(bundle, message)


@pytest.mark.parametrize("name", ["../outside", "{absolute}", "./model.onnx"])
def test_listed_paths_outside_the_folder_are_refused(bundle, name):
    outside_file = bundle.with_name("outside")
    outside_file.touch()
    hashes = read_manifest(bundle)["sha256"] | {name.format(absolute=outside_file): sha256(outside_file)}
    alter_manifest(bundle, sha256=hashes)
    assert_refused(bundle, "incomplete: .* is missing")


def test_deeply_nested_json_is_refused(bundle):
    (bundle / REPORT_FILE).write_text("[" * 10**5)
    refresh_checksum(bundle, REPORT_FILE)
    with pytest.raises(BundleError, match="is not a parity report: its values are nested too deeply"):
        load_bundle(bundle).report  # noqa: B018 - the property reads the file


def build_npy_header(shape, descr):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": descr})
    return stream.getvalue()


def build_npy(array):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array))
    return stream.getvalue()


MEMBERS = {  # replaced or added member of the archive, its content, message
    "pickle": ("0/inputs/queries", build_npy_header((1,), "|O") + bytes(8), "contains pickled objects"),
    "shape": ("0/inputs/queries", build_npy_header((2**40, 2), "<f4"), "with input `queries` in float32 of shape"),
    "dtype": ("0/inputs/queries", build_npy_header((1, 1, 4), "<f8"), "with input `queries` in float64 of shape"),
    "output": ("0/outputs/context", build_npy_header((2**40,), "<f4"), "with output `context` in float32 of shape"),
    "rounding": ("0/rounding/context", build_npy_header((2**40,), "<i2"), "rounding limits `context` do not match"),
    "another input": ("0/inputs/other", build_npy_header((2**40,), "<f4"), "and the manifest says"),
    "another kind": ("0/other/queries", build_npy_header((2**40,), "<f4"), "which are not part of any golden case"),
    "another case": ("99/inputs/queries", build_npy_header((2**40,), "<f4"), "must have arrays of .* cases, as listed"),
    "long names": ("cases", build_npy_header((1,), "<U1001"), "names of at most 1000 characters"),
    "version": ("0/inputs/queries", b"\x93NUMPY\x03\x00" + bytes(64), r"has version \(3, 0\)"),
}


def write_report(bundle):
    load_bundle(bundle).write_report()


CASE_READERS = (verify_bundle, write_report)


@pytest.mark.parametrize(("name", "content", "message"), MEMBERS.values(), ids=MEMBERS)
def test_arrays_that_contradict_the_manifest_are_refused(bundle, name, content, message, monkeypatch):
    arrays = read_arrays(bundle / CASES_FILE)
    members = {key: build_npy(array) for key, array in arrays.items()} | {name: content}
    with zipfile.ZipFile(bundle / CASES_FILE, "w") as archive:
        for key, member in members.items():
            archive.writestr(f"{key}.npy", member)
    refresh_checksum(bundle, CASES_FILE)
    monkeypatch.setattr(np.lib.format, "read_array", None)
    assert_refused(bundle, rf"cases\.npz.* {message}", CASE_READERS)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archive_with_an_array_twice_is_refused(bundle):
    with zipfile.ZipFile(bundle / CASES_FILE, "a") as archive:
        archive.writestr("0/inputs/queries.npy", build_npy_header((2**40,), "<f4"))
    refresh_checksum(bundle, CASES_FILE)
    assert_refused(bundle, "array names must be unique and end in .npy", CASE_READERS)


def build_tensor(*locations):
    tensor = TensorProto(name="w", dims=[1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for location in locations:
        tensor.external_data.add(key="location", value=location)
    return tensor


def build_node(name, value):
    return helper.make_node("Constant", [], ["w"], **{name: value})


def build_graph(location):
    return helper.make_graph([build_node("value", build_tensor(location))], "inner", [], [])


ADD_TENSOR = {
    "initializer": lambda model, path: model.graph.initializer.append(build_tensor(path)),
    "second entry": lambda model, path: model.graph.initializer.append(build_tensor("model.onnx", path)),
    "subgraph": lambda model, path: model.graph.node.append(build_node("body", build_graph(path))),
    "sparse": lambda model, path: model.graph.sparse_initializer.add().values.CopyFrom(build_tensor(path)),
    "function": lambda model, path: model.functions.add(name="f").node.append(build_node("body", build_graph(path))),
    "training": lambda model, path: model.training_info.add().algorithm.CopyFrom(build_graph(path)),
}


@pytest.mark.parametrize(
    ("add", "location"),
    [
        *((add, "../outside") for add in ADD_TENSOR.values()),
        *((ADD_TENSOR["initializer"], location) for location in ("*/_ORT_MEM_ADDR_/*", "saved_model/../verify.py", "")),
    ],
)
def test_external_data_outside_the_listed_files_is_refused(bundle, add, location):
    model = onnx.load(bundle / MODEL)
    add(model, location)
    onnx.save(model, bundle / MODEL)
    refresh_checksum(bundle, MODEL)
    assert_refused(bundle, rf"stores external data in `{re.escape(location)}`, which the manifest does not list")


def test_memory_address_is_refused_although_the_manifest_lists_it(tmp_path):
    model = helper.make_model(build_graph("*/_ORT_MEM_ADDR_/*"))
    onnx.save(model, tmp_path / MODEL)
    with pytest.raises(BundleError, match="which the manifest does not list"):
        untrusted_input.check_external_data(tmp_path / MODEL, {"*/_ORT_MEM_ADDR_/*"})


def test_external_data_in_a_listed_file_is_read(bundle):
    model = onnx.load(bundle / MODEL)
    expected = load_bundle(bundle).run(draw_small_inputs())
    for tensor in model.graph.initializer:
        # onnxruntime 1.19 infers shapes from integer tensors, and does not read external data for that.
        if tensor.data_type == TensorProto.FLOAT:
            onnx.external_data_helper.set_external_data(tensor, "model.onnx.data")
    onnx.save(model, bundle / MODEL)
    refresh_checksum(bundle, MODEL)
    assert_refused(bundle, r"holds model\.onnx\.data, which its manifest does not list")
    refresh_checksum(bundle, "model.onnx.data")
    for name, output in load_bundle(bundle).run(draw_small_inputs()).items():
        np.testing.assert_array_equal(output, expected[name])


@pytest.mark.parametrize("content", [b"not a model", b"\x3a\xff\xff\xff\xff\x7f"])
def test_malformed_model_is_refused(bundle, content):
    (bundle / MODEL).write_bytes(content)
    refresh_checksum(bundle, MODEL)
    assert_refused(bundle, r"model\.onnx is not an ONNX file: ")


def test_case_with_a_code_beyond_unicode_is_refused(tmp_path):
    codes = np.array([[0x110000]], np.uint32).view("U1")[:, 0]
    np.savez(tmp_path / "cases.npz", **{"cases": np.array(["a"]), "0/inputs/text": codes})
    with pytest.raises(BundleError, match="is not a file of golden cases"):
        load_cases(tmp_path / "cases.npz")
