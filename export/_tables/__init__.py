"""Rows of Parquet files as batches of model inputs."""
