"""Batch inference: tables in Parquet through a bundle, a part at a time, on one machine or on many."""
