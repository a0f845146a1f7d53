"""From Keras to an ONNX graph by way of TensorFlow and tf2onnx."""
