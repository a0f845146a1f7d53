"""Layers of positions."""
