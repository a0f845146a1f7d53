"""Public attention layers, one per file."""
