"""A bundle as one page: what it is made of, how it compares with Keras, where its time goes, what it attends to."""
