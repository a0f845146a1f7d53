"""Handlers for arithmetic."""
