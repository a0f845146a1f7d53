"""Scripts for worker processes that do not import the package."""
