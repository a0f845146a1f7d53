"""Operators of TensorFlow that tf2onnx maps."""
