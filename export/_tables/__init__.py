"""Batches of rows from Parquet and NumPy files."""
