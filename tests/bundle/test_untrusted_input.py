"""Refusals of untrusted bundles: one line in the error, before NumPy or onnxruntime reads the file."""

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
from keras_attn_export._format.names import CASES, MANIFEST, MODEL


def refused(bundle, said, uses=(load_bundle, verify_bundle)):
    for use in uses:
        with pytest.raises(BundleError, match=said) as error:
            use(bundle)
        assert "\n" not in str(error.value)


def linked(name):
    """Return a function that replaces a part of a bundle by a link to it."""

    def alter(bundle):
        shutil.move(bundle / name, bundle.with_name("outside"))
        (bundle / name).symlink_to(bundle.with_name("outside"))

    return alter


def replaced(name, make):
    def alter(bundle):
        (bundle / name).unlink()
        make(bundle / name)

    return alter


def large(file):
    file.touch()
    os.truncate(file, 2**24 + 1)


FILES = {
    **{f"link {name}": (linked(name), "a symbolic link") for name in (MANIFEST, MODEL, "saved_model")},
    "link to nowhere": (lambda bundle: (bundle / "link").symlink_to("nowhere"), "link is a symbolic link"),
    "pipe": (replaced(MODEL, os.mkfifo), r"model\.onnx is not a regular file"),
    "pipe for JSON": (replaced(MANIFEST, os.mkfifo), r"manifest\.json is not a regular file"),
    "large manifest": (replaced(MANIFEST, large), r"manifest\.json must have at most .* Received: 16777217 bytes"),
    "large report": (replaced(REPORT_FILE, large), r"report\.json must have at most .* Received: 16777217 bytes"),
}


@pytest.mark.parametrize(("alter", "said"), FILES.values(), ids=FILES)
def test_links_pipes_and_large_json_are_refused_unread(bundle, alter, said):
    alter(bundle)
    refused(bundle, said)


@pytest.mark.parametrize("name", ["../outside", "{absolute}", "./model.onnx"])
def test_listed_names_that_leave_the_folder_are_refused(bundle, name):
    outside = bundle.with_name("outside")
    outside.touch()
    hashes = read_manifest(bundle)["sha256"] | {name.format(absolute=outside): sha256(outside)}
    alter_manifest(bundle, sha256=hashes)
    refused(bundle, "incomplete: .* is missing")


def test_deeply_nested_json_is_refused(bundle):
    (bundle / REPORT_FILE).write_text("[" * 10**5)
    refresh_checksum(bundle, REPORT_FILE)
    with pytest.raises(BundleError, match="is not a parity report: its values are nested too deeply"):
        load_bundle(bundle).report  # noqa: B018 - it is read here


def header(shape, descr):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": descr})
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array))
    return stream.getvalue()


MEMBERS = {  # members of the archive that replace others or are added
    "pickle": ("0/inputs/queries", header((1,), "|O") + bytes(8), "contains pickled objects"),
    "shape": ("0/inputs/queries", header((2**40, 2), "<f4"), "with input `queries` in float32 of shape"),
    "dtype": ("0/inputs/queries", header((1, 1, 4), "<f8"), "with input `queries` in float64 of shape"),
    "output": ("0/outputs/context", header((2**40,), "<f4"), "with output `context` in float32 of shape"),
    "rounding": ("0/rounding/context", header((2**40,), "<i2"), "rounding limits `context` do not match"),
    "another input": ("0/inputs/other", header((2**40,), "<f4"), "and the manifest says"),
    "another kind": ("0/other/queries", header((2**40,), "<f4"), "which are not part of any golden case"),
    "another case": ("99/inputs/queries", header((2**40,), "<f4"), "must have arrays of .* cases, as listed"),
    "long names": ("cases", header((1,), "<U1001"), "names of at most 1000 characters"),
    "version": ("0/inputs/queries", b"\x93NUMPY\x03\x00" + bytes(64), r"has version \(3, 0\)"),
}


def write_report(bundle):
    load_bundle(bundle).write_report()


CASE_READERS = (verify_bundle, write_report)


@pytest.mark.parametrize(("name", "content", "said"), MEMBERS.values(), ids=MEMBERS)
def test_arrays_that_do_not_fit_the_manifest_are_refused_unread(bundle, name, content, said, monkeypatch):
    arrays = read_arrays(bundle / CASES)
    members = {key: npy(array) for key, array in arrays.items()} | {name: content}
    with zipfile.ZipFile(bundle / CASES, "w") as archive:
        for key, member in members.items():
            archive.writestr(f"{key}.npy", member)
    refresh_checksum(bundle, CASES)
    monkeypatch.setattr(np.lib.format, "read_array", None)
    refused(bundle, rf"cases\.npz.* {said}", CASE_READERS)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archive_with_an_array_twice_is_refused(bundle):
    with zipfile.ZipFile(bundle / CASES, "a") as archive:
        archive.writestr("0/inputs/queries.npy", header((2**40,), "<f4"))
    refresh_checksum(bundle, CASES)
    refused(bundle, "array names must be unique and end in .npy", CASE_READERS)


def outside(*locations):
    tensor = TensorProto(name="w", dims=[1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for location in locations:
        tensor.external_data.add(key="location", value=location)
    return tensor


def as_attribute(name, value):
    return helper.make_node("Constant", [], ["w"], **{name: value})


def in_graph(location):
    return helper.make_graph([as_attribute("value", outside(location))], "inner", [], [])


PLACES = {
    "initializer": lambda model, at: model.graph.initializer.append(outside(at)),
    "second entry": lambda model, at: model.graph.initializer.append(outside("model.onnx", at)),
    "subgraph": lambda model, at: model.graph.node.append(as_attribute("body", in_graph(at))),
    "sparse": lambda model, at: model.graph.sparse_initializer.add().values.CopyFrom(outside(at)),
    "function": lambda model, at: model.functions.add(name="f").node.append(as_attribute("body", in_graph(at))),
    "training": lambda model, at: model.training_info.add().algorithm.CopyFrom(in_graph(at)),
}


@pytest.mark.parametrize(
    ("place", "location"),
    [
        *((place, "../outside") for place in PLACES.values()),
        *((PLACES["initializer"], location) for location in ("*/_ORT_MEM_ADDR_/*", "saved_model/../verify.py", "")),
    ],
)
def test_external_data_outside_the_listed_files_is_refused(bundle, place, location):
    model = onnx.load(bundle / MODEL)
    place(model, location)
    onnx.save(model, bundle / MODEL)
    refresh_checksum(bundle, MODEL)
    refused(bundle, rf"stores external data in `{re.escape(location)}`, which the manifest does not list")


def test_memory_address_is_refused_although_the_manifest_lists_it(tmp_path):
    model = helper.make_model(in_graph("*/_ORT_MEM_ADDR_/*"))
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
    refused(bundle, r"holds model\.onnx\.data, which its manifest does not list")
    refresh_checksum(bundle, "model.onnx.data")
    for name, output in load_bundle(bundle).run(draw_small_inputs()).items():
        np.testing.assert_array_equal(output, expected[name])


@pytest.mark.parametrize("content", [b"not a model", b"\x3a\xff\xff\xff\xff\x7f"])
def test_model_that_is_no_protobuf_is_refused(bundle, content):
    (bundle / MODEL).write_bytes(content)
    refresh_checksum(bundle, MODEL)
    refused(bundle, r"model\.onnx is not an ONNX file: ")


def test_case_with_a_code_beyond_unicode_is_refused(tmp_path):
    codes = np.array([[0x110000]], np.uint32).view("U1")[:, 0]
    np.savez(tmp_path / "cases.npz", **{"cases": np.array(["a"]), "0/inputs/text": codes})
    with pytest.raises(BundleError, match="is not a file of golden cases"):
        load_cases(tmp_path / "cases.npz")
