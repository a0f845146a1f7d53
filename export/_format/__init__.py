"""Bundle format: files, manifest, golden cases, and their comparison. Imports nothing else of the package."""
