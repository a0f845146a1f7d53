"""Recurrent cells that attend, and the loop around them."""
