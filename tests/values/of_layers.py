"""Layers of `keras.layers` that infer."""
