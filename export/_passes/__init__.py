"""Passes over a finished ONNX graph, one per file."""
