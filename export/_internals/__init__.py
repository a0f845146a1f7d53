"""Private names of Keras, TensorFlow and tf2onnx, one module each: all that a release of theirs may take away."""
