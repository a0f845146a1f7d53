"""How TensorFlow's graph becomes ONNX: one file a lowering."""
