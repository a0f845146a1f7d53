"""Reference outputs of Keras with rounding limits, the differences that rounding alone can cause."""
