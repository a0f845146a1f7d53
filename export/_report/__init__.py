"""Report of a bundle: one HTML page with its examples, attention weights, signature and comparison with Keras."""
