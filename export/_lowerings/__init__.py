"""How attention is written: which form each layer gets, how fast it is, and the bodies."""
