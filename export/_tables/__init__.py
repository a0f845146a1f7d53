"""Rows of Parquet tables as padded arrays for the inputs of a model."""
