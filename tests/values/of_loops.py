"""Loops, branches, transforms and losses of `keras.ops`, and recurrent layers."""
