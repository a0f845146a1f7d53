"""Prediction over Parquet tables, on this machine or on Ray."""
