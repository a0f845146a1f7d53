"""A file a layer."""
