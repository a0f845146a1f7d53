"""Faults in exported ONNX graphs: `nox -s mutate-graphs`."""
