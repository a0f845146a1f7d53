"""Scripts that run in a process of their own, without the package."""
