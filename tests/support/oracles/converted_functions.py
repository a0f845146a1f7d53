"""Functions of TensorFlow as ONNX models, and both run: what the handler of an operator needs, in a second."""

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


class Converted:
    """A function of tensors by name as an ONNX `model` with one output, `out`; all axes of its inputs are dynamic."""

    def __init__(self, function: Callable[..., Any], **inputs: np.ndarray) -> None:
        kinds = {name: "string" if array.dtype.kind in "OU" else array.dtype for name, array in inputs.items()}
        specs = {name: tf.TensorSpec([None] * array.ndim, kinds[name], name) for name, array in inputs.items()}
        named = tf.function(
            lambda given: {"out": tf.identity(function(**given))}, input_signature=[specs], autograph=False
        )
        outer = tf.function(lambda given: named(given), input_signature=[specs], autograph=False)
        self._function, self._inputs = outer.get_concrete_function(), inputs
        found = convert_to_onnx(self._function, ())
        self.model: onnx.ModelProto = add_string_functions(add_weights(found.model, found.weights))
        onnx.checker.check_model(self.model, full_check=True)
        self._session = ort.InferenceSession(self.model.SerializeToString(), providers=["CPUExecutionProvider"])

    def assert_same(self, **inputs: np.ndarray) -> np.ndarray:
        """Return what onnxruntime gives for other inputs or the first ones, which is what TensorFlow does."""
        given = self._inputs | inputs
        expected = decode_strings(
            self._function({name: tf.constant(array) for name, array in given.items()})["out"].numpy()
        )
        (found,) = self._session.run(["out"], given)
        assert found.dtype == expected.dtype
        if found.dtype.kind != "f":
            np.testing.assert_array_equal(found, expected)
            return found
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        return found
