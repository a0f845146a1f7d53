"""Handlers for convolutions, pooling, resizing and colours."""
