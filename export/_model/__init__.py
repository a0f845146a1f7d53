"""The model and what it gives: names, inputs to draw, dynamic axes, golden cases and the reference outputs."""
