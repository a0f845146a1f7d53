"""Bundles around a graph written by hand, in a moment: for what runs a bundle and does not care who made it."""

import numpy as np
import onnx

from keras_attn_export._bundle.bundle_files import finalize_bundle
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.dtypes import numpy_dtype
from keras_attn_export._format.manifest import Manifest, Spec
from keras_attn_export._format.names import CASES, MODEL, STRING, Case

# As many steps as the largest number in `x` says, and then `x`.
COUNTING = """
    axes = Constant <value = int64[1] {0}> ()
    most = ReduceMax <keepdims = 0> (x)
    steps = Cast <to = 7> (most)
    go = Constant <value = bool {1}> ()
    y = Loop (steps, go, x) <body = b (int64 step, bool c, float[batch] s) => (bool d, float[batch] t) {
        d = Identity (c)
        t = Identity (s)
    }>
"""
ENDLESS = 2.0**62


def write_onnx_bundle(folder, nodes, inputs, outputs, **manifest):
    """Write a bundle whose graph is `nodes`, in ONNX's text format; its one golden case proves nothing.

    Inputs and outputs are dtypes and shapes by name, the sizes of dynamic axes strings.
    """
    (folder / "parity").mkdir(parents=True)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({_typed(inputs)}) => ({_typed(outputs)}) {{ {nodes} }}'
    )
    onnx.checker.check_model(model)
    onnx.save(model, str(folder / MODEL))
    zeros = {
        name: np.full([1] * len(shape), "" if dtype == STRING else 0, numpy_dtype(dtype))
        for name, (dtype, shape) in inputs.items()
    }
    save_cases(folder / CASES, [Case("nothing", zeros, {})])
    specs = ([Spec(name, dtype, tuple(shape)) for name, (dtype, shape) in each.items()] for each in (inputs, outputs))
    finalize_bundle(folder, build_manifest(*specs, **manifest))
    return folder


def build_manifest(inputs=(), outputs=(), **entries):
    """Return a manifest that says little but what goes in and comes out."""
    little = {"model": "drawn", "opset": 17, "layers": [], "versions": {}, "lowest_onnxruntime": "1.18", "sha256": {}}
    parity = {"tolerance": {"relative": 0.0, "absolute": 0.0}, "cases": 1}
    return Manifest(**{**little, "parity": parity, "inputs": tuple(inputs), "outputs": tuple(outputs), **entries})


_ONNX_NAMES = {"float32": "float", "float64": "double"}


def _typed(tensors):
    return ", ".join(
        f"{_ONNX_NAMES.get(dtype, dtype)}[{', '.join(map(str, shape))}] {name}"
        for name, (dtype, shape) in tensors.items()
    )
