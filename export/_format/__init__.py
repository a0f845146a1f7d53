"""Bundle format: files, manifest, golden cases, and their comparison. Independent of the other folders."""
