"""Bundle: writing, loading, verification, benchmarks."""
