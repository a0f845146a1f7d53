"""Linear algebra of `keras.ops`."""
