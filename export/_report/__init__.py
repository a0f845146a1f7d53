"""Report page of a bundle."""
