"""Trace a Keras model with TensorFlow, write the SavedModel, and convert the graph to ONNX."""
