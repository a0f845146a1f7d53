"""Faults of our own code: `nox -s mutate`; and of exported graphs: `nox -s mutate-graphs`."""
