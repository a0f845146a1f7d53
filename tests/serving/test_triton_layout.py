"""`config.pbtxt` says what the manifest says, in the words of Triton."""

import json
import subprocess
from pathlib import Path

import pytest
from bundles import read_manifest
from serving import serving_python

from keras_attn_export import UnsupportedModelError
from keras_attn_export._serving.layout import write_layout
from keras_attn_export._serving.triton_layout import config, quoted

pytest_plugins = ("bundle_fixtures",)

PARSER = Path(__file__).with_name("parse_config.py")
AS_PROVEN = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
ODD = 'attention/keys:0 "ä\\\n'

SMALL = """\
name: "small"
backend: "onnxruntime"
default_model_filename: "model.onnx"
max_batch_size: 64
input {
  name: "queries"
  data_type: TYPE_FP32
  dims: [-1, 4]
}
input {
  name: "keys"
  data_type: TYPE_FP32
  dims: [-1, 6]
}
input {
  name: "values"
  data_type: TYPE_FP32
  dims: [-1, 5]
}
input {
  name: "valid_lens"
  data_type: TYPE_INT32
  dims: [1]
  reshape { shape: [] }
}
output {
  name: "context"
  data_type: TYPE_FP32
  dims: [-1, 5]
}
output {
  name: "weights"
  data_type: TYPE_FP32
  dims: [-1, -1]
}
instance_group { count: 1 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 1000 }
"""


def spec(name, dtype, *shape):
    return {"name": name, "dtype": dtype, "shape": [*shape]}


EVERY_DTYPE = {
    **{dtype: f"TYPE_{dtype.upper()}" for dtype in ("bool", "int8", "int16", "int32", "int64")},
    **{dtype: f"TYPE_{dtype.upper()}" for dtype in ("uint8", "uint16", "uint32", "uint64")},
    **{"float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64", "bfloat16": "TYPE_BF16"},
}


def manifest(*inputs):
    return {"inputs": [*inputs], "outputs": [spec("out", "float32", "batch", 3)]}


def test_the_whole_text(exported, tmp_path):
    write_layout(exported, tmp_path, target="triton")
    assert (tmp_path / "small" / "config.pbtxt").read_text() == SMALL


def test_without_a_batch_every_axis_is_one_of_dims():
    text = config(manifest(spec("x", "float32", "batch", 3), spec("n", "int32", "batch")), "m", "cpu", merged=False)
    assert "max_batch_size: 0\n" in text
    assert "dims: [-1, 3]\n}" in text
    assert "dims: [-1]\n}" in text
    assert "reshape" not in text
    assert "dynamic_batching" not in text


@pytest.mark.parametrize(("text", "expected"), [("a b", '"a b"'), ('"\\\n', r'"\042\134\012"'), ("ä", r'"\303\244"')])
def test_text_is_quoted(text, expected):
    assert quoted(text) == expected


def test_a_dtype_that_triton_lacks():
    with pytest.raises(UnsupportedModelError, match="`x` has dtype complex64, and Triton takes bfloat16, "):
        config(manifest(spec("x", "complex64", 3)), "m", "cpu", merged=False)


@pytest.fixture
def parsed(tmp_path):
    """Return a function that reads a text with Triton's own protobuf, and gives every field that is set."""

    def read(text):
        (tmp_path / "text").write_text(text, encoding="utf-8")
        command = [serving_python(), PARSER, tmp_path / "text"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    return read


def entry(each, batch):
    """Return what Triton should read for an input or output of the manifest."""
    dims = [-1 if isinstance(size, str) else size for size in each["shape"][batch:]]
    told = {"name": each["name"], "data_type": EVERY_DTYPE[each["dtype"]], "dims": dims or ["1"]}
    return told | ({} if dims else {"reshape": {}})


def with_numbers(told):
    """Return entries whose dims are numbers: protobuf's JSON has 64-bit integers as text."""
    return [each | {"dims": [int(size) for size in each["dims"]]} for each in told]


@pytest.mark.serving
def test_tritons_protobuf_reads_every_field(exported, tmp_path, parsed):
    write_layout(exported, tmp_path, target="triton")
    told, said = parsed((tmp_path / "small" / "config.pbtxt").read_text()), read_manifest(exported)
    for side in ("input", "output"):
        assert with_numbers(told.pop(side)) == with_numbers([entry(each, 1) for each in said[f"{side}s"]])
    assert told == {
        "name": "small",
        "backend": "onnxruntime",
        "default_model_filename": "model.onnx",
        "max_batch_size": 64,
        "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
        "dynamic_batching": {"max_queue_delay_microseconds": "1000"},
    }


@pytest.mark.serving
def test_tritons_protobuf_reads_odd_names_and_every_dtype(parsed):
    inputs = [spec(f"{ODD}{dtype}", dtype, "batch", 3, "length") for dtype in EVERY_DTYPE]
    inputs.append(spec("scalar", "float32"))
    told = parsed(config(manifest(*inputs), "m", "cuda", merged=False))
    assert with_numbers(told.pop("input")) == with_numbers([entry(each, 0) for each in inputs])
    assert with_numbers(told.pop("output")) == [{"name": "out", "data_type": "TYPE_FP32", "dims": [-1, 3]}]
    assert told == {
        "name": "m",
        "backend": "onnxruntime",
        "default_model_filename": "model.onnx",
        "instance_group": [{"count": 1, "kind": "KIND_GPU"}],
        "optimization": {
            "execution_accelerators": {"gpu_execution_accelerator": [{"name": "cuda", "parameters": AS_PROVEN}]}
        },
    }
