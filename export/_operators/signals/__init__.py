"""Handlers for complex numbers and Fourier transforms."""
