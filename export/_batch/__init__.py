"""Batch inference on tables."""
