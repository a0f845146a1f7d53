"""A Keras model traced to ONNX without the later steps of an export, and runs of ONNX models in onnxruntime."""

from collections import Counter

import numpy as np


def trace_model(model, folder, names=()):
    """Trace a Keras model to ONNX; `names` are the layers with name scopes."""
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
    """Count the operators of the main graph after the optimizations of onnxruntime for CPUs."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3  # onnxruntime warns that the optimized file is for this machine only
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


def run_traced_model(model, inputs, folder):
    """Return the outputs of a traced functional model with a dict of outputs, computed by onnxruntime."""
    return run_model(add_string_functions(trace_model(model, folder).model), **inputs)


def add_string_functions(model):
    """Return a model with the string functions that it calls, converted to an opset that has their operators."""
    from onnx import version_converter

    from keras_attn_export._operators.text.hash_functions import build_hash_functions, find_hash_opset
    from keras_attn_export._operators.text.string_functions import build_string_functions, find_string_opset
    from keras_attn_export._options import TF2ONNX_OPSET
    from keras_attn_export._passes.finalize import add_functions

    opset = max(TF2ONNX_OPSET, find_string_opset(model), find_hash_opset(model))
    functions = [*build_string_functions(model, opset), *build_hash_functions(model, opset)]
    return add_functions(version_converter.convert_version(model, opset) if opset > TF2ONNX_OPSET else model, functions)


def apply_change(model, change, *inputs):
    """Return a changed copy of an ONNX model, and assert that its outputs on `inputs` are identical."""
    import onnx

    changed = type(model).FromString(model.SerializeToString())
    is_changed = change(changed)
    assert is_changed in (None, changed != model), "a pass returns whether it changed the model"
    onnx.checker.check_model(changed, full_check=True)
    for arrays in inputs:
        expected = run_model(model, **arrays)
        for name, actual in run_model(changed, **arrays).items():
            np.testing.assert_array_equal(actual, expected[name])
    return changed
