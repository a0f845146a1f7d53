"""Private APIs of Keras, TensorFlow and tf2onnx that the export depends on. docs/stability.md lists them."""
