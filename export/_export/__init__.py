"""The way through an export: what is asked for, what is written, and the process for models on JAX or torch."""
