"""Handlers that select, move and scatter elements."""
