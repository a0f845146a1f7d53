"""Report of a bundle as one HTML page."""
