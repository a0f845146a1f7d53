"""Bundles around a handwritten graph, written in milliseconds: for tests that run a bundle without an export."""

import numpy as np
import onnx

from keras_attn_export._bundle.bundle_files import finalize_bundle
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.dtypes import numpy_dtype
from keras_attn_export._format.manifest import Manifest, Spec
from keras_attn_export._format.names import CASES_FILE, MODEL, STRING, Case

# The largest number in `x` is the number of steps of the loop; the output is `x`.
COUNTING_NODES = """
    axes = Constant <value = int64[1] {0}> ()
    most = ReduceMax <keepdims = 0> (x)
    steps = Cast <to = 7> (most)
    go = Constant <value = bool {1}> ()
    y = Loop (steps, go, x) <body = b (int64 step, bool c, float[batch] s) => (bool d, float[batch] t) {
        d = Identity (c)
        t = Identity (s)
    }>
"""
ENDLESS_STEPS = 2.0**62  # steps: the run must be interrupted


def write_onnx_bundle(folder, nodes, inputs, outputs, **manifest):
    """Write a bundle whose graph is `nodes`, in ONNX's text format; its golden case has no outputs to compare.

    Inputs and outputs map names to a dtype and a shape; the size of a dynamic axis is a string.
    """
    (folder / "parity").mkdir(parents=True)
    signature = f"g ({_format_tensors(inputs)}) => ({_format_tensors(outputs)})"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {signature} {{ {nodes} }}')
    onnx.checker.check_model(model)
    onnx.save(model, str(folder / MODEL))
    zeros = {
        name: np.full([1] * len(shape), "" if dtype == STRING else 0, numpy_dtype(dtype))
        for name, (dtype, shape) in inputs.items()
    }
    save_cases(folder / CASES_FILE, [Case("nothing", zeros, {})])
    pair = (inputs, outputs)
    specs = ([Spec(name, dtype, tuple(shape)) for name, (dtype, shape) in tensors.items()] for tensors in pair)
    finalize_bundle(folder, build_manifest(*specs, **manifest))
    return folder


def build_manifest(inputs=(), outputs=(), **entries):
    """Return a manifest of inputs and outputs, with placeholders for all further entries."""
    defaults = {"model": "drawn", "opset": 17, "layers": [], "versions": {}, "lowest_onnxruntime": "1.18", "sha256": {}}
    parity = {"tolerance": {"relative": 0.0, "absolute": 0.0}, "cases": 1}
    return Manifest(**{**defaults, "parity": parity, "inputs": tuple(inputs), "outputs": tuple(outputs), **entries})


_ONNX_NAMES = {"float32": "float", "float64": "double"}


def _format_tensors(tensors):
    return ", ".join(
        f"{_ONNX_NAMES.get(dtype, dtype)}[{', '.join(map(str, shape))}] {name}"
        for name, (dtype, shape) in tensors.items()
    )
