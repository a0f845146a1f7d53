"""Signature of a Keras model: names, shapes and dtypes of inputs and outputs."""
