"""The check on a GPU: `scripts/gpu-bundles` writes bundles where Keras is, `scripts/gpu-check` runs them by a GPU.

What the second imports is NumPy, onnxruntime, the standard library and, where it is there, torch.
"""
