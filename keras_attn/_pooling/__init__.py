"""The way of a call, for all layers."""
