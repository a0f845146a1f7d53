"""TensorFlow functions converted to ONNX models, and their comparison: tests of operator handlers in a second."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import tensorflow as tf
from traced_models import add_string_functions

from keras_attn_export._format.dtypes import decode_strings
from keras_attn_export._onnx.external_data import add_weights
from keras_attn_export._tracing.to_onnx import convert_to_onnx


class ConvertedFunction:
    """A function of named tensors as an ONNX `model` with dynamic axes and one output, `out`."""

    def __init__(self, function: Callable[..., Any], **inputs: np.ndarray) -> None:
        kinds = {name: "string" if array.dtype.kind in "OU" else array.dtype for name, array in inputs.items()}
        specs = {name: tf.TensorSpec([None] * array.ndim, kinds[name], name) for name, array in inputs.items()}
        options = {"input_signature": [specs], "autograph": False}
        function_of_dict = tf.function(lambda given: {"out": tf.identity(function(**given))}, **options)
        caller = tf.function(lambda given: function_of_dict(given), **options)
        self._function, self._inputs = caller.get_concrete_function(), inputs
        traced = convert_to_onnx(self._function, ())
        self.model: onnx.ModelProto = add_string_functions(add_weights(traced.model, traced.weights))
        onnx.checker.check_model(self.model, full_check=True)
        self._session = ort.InferenceSession(self.model.SerializeToString(), providers=["CPUExecutionProvider"])

    def assert_parity(self, **inputs: np.ndarray) -> np.ndarray:
        """Assert that onnxruntime and TensorFlow agree on the inputs or their replacements; return the output."""
        arrays = self._inputs | inputs
        tensors = {name: tf.constant(array) for name, array in arrays.items()}
        expected = decode_strings(self._function(tensors)["out"].numpy())
        (actual,) = self._session.run(["out"], arrays)
        assert actual.dtype == expected.dtype
        if actual.dtype.kind != "f":
            np.testing.assert_array_equal(actual, expected)
            return actual
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
        return actual
