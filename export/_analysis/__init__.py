"""What can be asked of a finished bundle: how fast it is, and where a mismatch begins."""
