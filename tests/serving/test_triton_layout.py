"""`config.pbtxt` says what the manifest says, in the words of Triton."""

import json
import re
import subprocess

import pytest
from onnx_bundles import manifest_of
from serving import serving_python

from keras_attn_export._serving.layout import write_layout
from keras_attn_export._serving.triton_layout import config, quoted
from keras_attn_export._standalone.verify import Spec

pytest_plugins = ("bundle_fixtures",)

PARSER = """
import json, sys
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

config = text_format.Parse(sys.stdin.read(), model_config_pb2.ModelConfig())
print(json.dumps(json_format.MessageToDict(config, preserving_proto_field_name=True)))
"""
AS_PROVEN = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
ODD = 'attention/keys:0 "ä\\\n'

ENTRY = r'(input|output) \{\n  name: "(\w+)"\n  data_type: TYPE_(\w+)\n  dims: (\[.*\])\n((?:  reshape .*\n)?)\}\n'
ENTRIES = [
    ("input", "queries", "FP32", "[-1, 4]", ""),
    ("input", "keys", "FP32", "[-1, 6]", ""),
    ("input", "values", "FP32", "[-1, 5]", ""),
    ("input", "valid_lens", "INT32", "[1]", "  reshape { shape: [] }\n"),
    ("output", "context", "FP32", "[-1, 5]", ""),
    ("output", "weights", "FP32", "[-1, -1]", ""),
]
REST = """\
name: "small"
backend: "onnxruntime"
default_model_filename: "model.onnx"
max_batch_size: 64
instance_group { count: 1 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 1000 }
"""


def spec(name, dtype, *shape):
    return Spec(name, dtype, shape)


DTYPES = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
EVERY_DTYPE = {dtype: f"TYPE_{dtype.upper()}" for dtype in DTYPES}
EVERY_DTYPE |= {"float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64"}


def manifest(*inputs):
    return manifest_of(inputs, [spec("out", "float32", "batch", 3)])


def written(exported, folder):
    """Return what is written for the small model."""
    write_layout(exported, folder, target="triton")
    return (folder / "small" / "config.pbtxt").read_text()


def test_the_whole_text(exported, tmp_path):
    small = written(exported, tmp_path)
    assert re.findall(ENTRY, small) == ENTRIES
    assert re.sub(ENTRY, "", small) == REST


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


def parsed(text):
    """Return every field that is set in a text, as Triton's own protobuf reads it."""
    return json.loads(
        subprocess.check_output([serving_python(), "-c", PARSER], input=text, encoding="utf-8", timeout=60)
    )


@pytest.mark.serving
def test_tritons_protobuf_reads_odd_names_and_every_dtype(exported, tmp_path):
    assert parsed(written(exported, tmp_path))["dynamic_batching"] == {"max_queue_delay_microseconds": "1000"}
    inputs = [spec(f"{ODD}{dtype}", dtype, "batch", 3, "length") for dtype in EVERY_DTYPE]
    told = parsed(config(manifest(*inputs, spec("scalar", "float32")), "m", "cuda", merged=False))
    # protobuf's JSON has 64-bit integers as text
    assert told == {
        "name": "m",
        "backend": "onnxruntime",
        "default_model_filename": "model.onnx",
        "input": [
            *(
                {"name": f"{ODD}{dtype}", "data_type": name, "dims": ["-1", "3", "-1"]}
                for dtype, name in EVERY_DTYPE.items()
            ),
            {"name": "scalar", "data_type": "TYPE_FP32", "dims": ["1"], "reshape": {}},
        ],
        "output": [{"name": "out", "data_type": "TYPE_FP32", "dims": ["-1", "3"]}],
        "instance_group": [{"count": 1, "kind": "KIND_GPU"}],
        "optimization": {
            "execution_accelerators": {"gpu_execution_accelerator": [{"name": "cuda", "parameters": AS_PROVEN}]}
        },
    }
