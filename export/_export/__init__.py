"""Stages of an export, from the options to the finished bundle."""
