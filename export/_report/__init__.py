"""A bundle as one page: what it is made of, how far it was proven, where its time goes, what it attends to."""
