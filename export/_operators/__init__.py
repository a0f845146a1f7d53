"""Handlers for TensorFlow operators that tf2onnx converts wrongly or not at all."""
