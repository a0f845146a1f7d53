"""`config.pbtxt` says what the manifest says, in the words of Triton."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from serving import serving_python

from keras_attn_export._serving.layout import write_layout
from keras_attn_export._serving.triton_layout import config, quoted

pytest_plugins = ("bundle_fixtures",)

PARSER = Path(__file__).with_name("parse_config.py")
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
    return {"name": name, "dtype": dtype, "shape": [*shape]}


EVERY_DTYPE = {
    **{dtype: f"TYPE_{dtype.upper()}" for dtype in ("bool", "int8", "int16", "int32", "int64")},
    **{dtype: f"TYPE_{dtype.upper()}" for dtype in ("uint8", "uint16", "uint32", "uint64")},
    **{"float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64", "bfloat16": "TYPE_BF16"},
}


def manifest(*inputs):
    return {"inputs": [*inputs], "outputs": [spec("out", "float32", "batch", 3)]}


@pytest.fixture
def small(exported, tmp_path):
    """Return what is written for the small model."""
    write_layout(exported, tmp_path, target="triton")
    return (tmp_path / "small" / "config.pbtxt").read_text()


def test_the_whole_text(small):
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


def parsed(text, folder):
    """Return every field that is set in a text, as Triton's own protobuf reads it."""
    (folder / "text").write_text(text, encoding="utf-8")
    command = [serving_python(), PARSER, folder / "text"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.serving
def test_tritons_protobuf_reads_odd_names_and_every_dtype(small, tmp_path):
    assert parsed(small, tmp_path)["dynamic_batching"] == {"max_queue_delay_microseconds": "1000"}
    inputs = [spec(f"{ODD}{dtype}", dtype, "batch", 3, "length") for dtype in EVERY_DTYPE]
    told = parsed(config(manifest(*inputs, spec("scalar", "float32")), "m", "cuda", merged=False), tmp_path)
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
