"""Lowerings of attention: the ONNX form of each attention call, and the choice of the form."""
