"""Passes over ONNX graphs, each on its own: what stays the same in a loop, what one operator can do, what is folded."""
