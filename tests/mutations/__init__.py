"""One-line faults in our own code, and the tests that must see them: `scripts/mutate`."""
