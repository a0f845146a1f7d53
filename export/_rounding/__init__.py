"""Rounding limits: reference outputs of Keras and the errors that rounding can cause in them."""
