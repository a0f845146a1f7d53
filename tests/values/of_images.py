"""Images, convolutions, pooling and normalisation of `keras.ops`."""
