"""ONNX graphs: values, functions, traversal, edits, shapes and files."""
