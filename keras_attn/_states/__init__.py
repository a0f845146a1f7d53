"""Keys and values that are computed once."""
