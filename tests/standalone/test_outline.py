"""The outline of an ONNX file is read as C++ protobuf reads the file, or the file is refused."""

import re
import tracemalloc
from collections import Counter

import numpy as np
import onnx
import onnx_outlines
import pytest
from bundles import reseal
from hostile_outlines import HOSTILE, LEGAL
from onnx_bundles import onnx_bundle
from onnx_outlines import (
    WIRES,
    by_cpp,
    by_python,
    entries_of,
    everywhere,
    fields_of,
    inner,
    is_repeated,
    message,
    mutated,
    one,
    trees,
)

from keras_attn_export import BundleError
from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import MODEL

INSIDE = {"inside": "its hash"}


def check(folder, content):
    (folder / MODEL).write_bytes(content)
    verify._check_external_data(folder / MODEL, INSIDE)


@pytest.mark.parametrize(("content", "said"), HOSTILE.values(), ids=HOSTILE)
def test_what_readers_could_take_for_two_things_is_refused(content, said, tmp_path):
    with pytest.raises(BundleError, match=re.escape(said)):
        check(tmp_path, content)


@pytest.mark.parametrize("content", LEGAL.values(), ids=LEGAL)
def test_what_is_legal_is_read(content, tmp_path):
    check(tmp_path, content)
    assert by_cpp(content) is not None


def in_tensors(kind, above=()):
    """Tell whether a message of onnx.proto leads to a tensor."""
    if kind.name == "TensorProto":
        return True
    inner = [each.message_type for each in kind.fields if each.message_type not in (None, kind, *above)]
    return any(in_tensors(each, (*above, kind)) for each in inner)


def wires(field):
    packed = is_repeated(field) and WIRES[field.type] != 2
    return (WIRES[field.type], 2) if packed else (WIRES[field.type],)


KINDS = {
    "ModelProto": "model",
    "TrainingInfoProto": "training",
    "FunctionProto": "function",
    "GraphProto": "graph",
    "NodeProto": "node",
    "AttributeProto": "attribute",
    "SparseTensorProto": "sparse",
    "TensorProto": "tensor",
    "StringStringEntryProto": "entry",
}


def inside(field):
    """Return what we call the message that a field holds, if it leads to what a tensor keeps elsewhere."""
    leads = field.message_type is not None and in_tensors(field.message_type)
    return KINDS[field.message_type.name] if leads or field.name == "external_data" else None


def test_the_outline_is_that_of_onnx():
    """Every field of every message that leads to a tensor; a new one of onnx is told here first."""
    wanted, left = {}, [onnx.ModelProto.DESCRIPTOR]
    while left:
        kind = left.pop()
        fields = wanted[KINDS[kind.name]] = {}
        for field in kind.fields:
            held = inside(field)
            once = not is_repeated(field) and (held is not None or kind.name == "StringStringEntryProto")
            fields |= {field.number << 3 | wire: (held, once) for wire in wires(field)}
            if held and held not in wanted:
                left.append(field.message_type)
    assert wanted == verify._FIELDS


@pytest.mark.parametrize("model", [everywhere, inner, one])
def test_every_place_of_a_tensor_is_found(model):
    content = model().SerializeToString()
    assert message(*fields_of(content)) == content
    found = told(content)
    assert found == entries_of(model()) == by_cpp(content)
    assert found[b"location", b"data0" if model is everywhere else b"data"]


def told(content):
    """Return what is found as `by_python` returns it, or None where it is refused."""
    try:
        return Counter(verify._external_data(content))
    except ValueError:
        return None


def differ(rng, number):
    """Change models in so many ways; return how many changed files each reader takes, where none may differ."""
    models, seen = trees(), Counter()
    for index in range(number):
        content = mutated(models[index % len(models)], rng)
        ours, theirs = told(content), (by_python(content), by_cpp(content))
        seen["refused here" if ours is None else "taken here"] += 1
        seen["refused by C++" if theirs[1] is None else "taken by C++"] += 1
        for each in theirs:
            assert None in (ours, each) or ours == each, content
        seen["the same by all"] += ours is not None and ours == theirs[0] == theirs[1]
    return seen


def test_changed_files_are_read_alike_or_refused(random_seed):
    seen = differ(np.random.default_rng(random_seed), 2000)
    assert min(seen["taken here"], seen["refused here"], seen["the same by all"]) > 200, seen


@pytest.mark.fuzz
@pytest.mark.parametrize("shard", range(8))
def test_many_changed_files_are_read_alike_or_refused(shard, random_seed, pytestconfig):
    seen = differ(np.random.default_rng([random_seed, shard]), pytestconfig.getoption("--outlines") // 8)
    print(dict(seen))


def test_the_walk_keeps_nothing(tmp_path):
    content = message(onnx_outlines.Field(7, 2, b"\x0a\x00" * 50_000))
    tracemalloc.start()
    try:
        check(tmp_path, content)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["elsewhere", "bit 32 in the tag of an entry", "bit 32 in the tag of a graph"])
def test_a_bundle_is_refused_before_it_is_opened(tmp_path, name):
    (tmp_path / "secret").write_bytes(bytes(16))
    bundle = onnx_bundle(tmp_path / "bundle", "y = Identity(x)", {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])})
    (bundle / MODEL).write_bytes(HOSTILE[name][0])
    reseal(bundle, MODEL)
    with pytest.raises(BundleError, match=re.escape(f"{MODEL} {HOSTILE[name][1]}")):
        verify.read_manifest(bundle)


MARKERS = ["*/_ORT_MEM_ADDR_/*", "*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*", "inner/*/_ORT_MEM_ADDR_/*"]


@pytest.mark.parametrize("name", MARKERS)
def test_a_file_called_as_an_address(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    with pytest.raises(BundleError, match=re.escape(f"lists `{name}`, which onnxruntime may take for no file.")):
        verify._check_names(tmp_path, {name: "its hash"})


def test_a_file_that_protobuf_cannot_hold(tmp_path):
    with (tmp_path / MODEL).open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(BundleError, match="protobuf reads at most 2 GiB, and it is larger"):
        verify._check_external_data(tmp_path / MODEL, INSIDE)
