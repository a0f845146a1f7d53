"""Recurrent cells with attention, and the loop over time steps."""
