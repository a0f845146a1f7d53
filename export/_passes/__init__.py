"""Passes over a finished ONNX graph, one rewrite per file."""
