"""Bundles: atomic writing, loading, verification, first difference and benchmark."""
