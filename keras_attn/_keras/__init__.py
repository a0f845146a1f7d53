"""Adapters to Keras and its backends: private APIs, projections, placeholders, seeds, gradients."""
