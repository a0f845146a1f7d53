"""ONNX forms of attention, one per file."""
