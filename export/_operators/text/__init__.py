"""Handlers for strings, and ONNX functions on strings."""
