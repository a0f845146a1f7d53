"""From a Keras model to a SavedModel, a TensorFlow graph and an ONNX graph."""
