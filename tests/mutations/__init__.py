"""Mutation tests of the parity check on exported ONNX graphs: `nox -s mutate-graphs`."""
