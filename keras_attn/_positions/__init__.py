"""Layers that compute position biases and embeddings."""
