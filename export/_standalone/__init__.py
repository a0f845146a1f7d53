"""Scripts that run in a process of their own and import nothing of this package."""
