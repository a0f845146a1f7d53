"""Handlers for conditionals, loops and `TensorArray`."""
