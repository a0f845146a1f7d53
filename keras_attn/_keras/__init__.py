"""What Keras and its backends want: their private names, projections, placeholders and seeds."""
