"""Conversion of a checked float32 file to float16 or int8."""
