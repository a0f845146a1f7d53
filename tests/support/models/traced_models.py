"""A Keras model as ONNX, without the rest of an export, and what onnxruntime makes of an ONNX model."""

from collections import Counter

import numpy as np


def trace_model(model, folder, names=()):
    """What tracing gives, with the layers of these names known."""
    from keras_attn_export._signature.signature import build_signature
    from keras_attn_export._tracing.saved_model import write_saved_model
    from keras_attn_export._tracing.to_onnx import convert_to_onnx

    return convert_to_onnx(write_saved_model(build_signature(model), folder / "saved_model"), names)


def run_model(model, **inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def count_optimized_operators(model, folder):
    """How many of each operator onnxruntime runs on CPUs, in the outermost graph, after all that it does to a graph."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3  # it warns that such a file is for this machine
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


def onnx_outputs(model, inputs, folder):
    """The outputs of a functional model with a dict of outputs, by onnxruntime on the operators that tracing gives."""
    return run_model(add_string_functions(trace_model(model, folder).model), **inputs)


def add_string_functions(model):
    """A model with the functions on strings that it calls, at an opset that has their operators."""
    from onnx import version_converter

    from keras_attn_export._operators.text.hash_functions import build_hash_functions, find_hash_opset
    from keras_attn_export._operators.text.string_functions import build_string_functions, find_string_opset
    from keras_attn_export._options import TF2ONNX_OPSET
    from keras_attn_export._passes.finalize import add_functions

    opset = max(TF2ONNX_OPSET, find_string_opset(model), find_hash_opset(model))
    functions = [*build_string_functions(model, opset), *build_hash_functions(model, opset)]
    return add_functions(version_converter.convert_version(model, opset) if opset > TF2ONNX_OPSET else model, functions)


def apply_change(model, change, *inputs):
    """A copy of an ONNX model after a change that must leave its outputs as they are, bit for bit, on these inputs."""
    import onnx

    after = type(model).FromString(model.SerializeToString())
    is_changed = change(after)
    assert is_changed in (None, after != model), "a pass returns whether it changed the model"
    onnx.checker.check_model(after, full_check=True)
    for given in inputs:
        before = run_model(model, **given)
        for name, found in run_model(after, **given).items():
            np.testing.assert_array_equal(found, before[name])
    return after
