"""Validation of constructor and call arguments, with error messages."""
