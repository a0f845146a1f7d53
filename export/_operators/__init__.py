"""Operators of TensorFlow that tf2onnx writes wrongly or not at all, and what is written for them."""
