"""Tests that need what an extra brings: `pytest.mark.needs("ray")`, with the names of modules.

A pytest plugin. Where a module is missing its tests are not selected, and a line at the end says how many, for want of
what, and which commands run them.
"""

import importlib.util
from collections import Counter
from functools import cache

import pytest
from left_out import leave_out

IN_SESSIONS = {
    ".venv/bin/nox -s interop": {"flax", "jax", "paddle", "torch"},
    ".venv/bin/nox -s zoo": {"keras_hub", "tensorflow_text"},
}
IN_VENV = "scripts/setup dev and scripts/test"  # what any other module comes with

is_missing = cache(lambda module: importlib.util.find_spec(module) is None)


@pytest.hookimpl(trylast=True)  # of what would run otherwise
def pytest_collection_modifyitems(config, items):
    missing = {item: lacking for item in items if (lacking := missing_for(item))}
    leave_out(config, items, missing, summary([*missing.values()]))


def missing_for(item):
    needed = {module for mark in item.iter_markers("needs") for module in mark.args}
    return frozenset(filter(is_missing, needed))


def summary(left):
    """One line about the tests that are not selected, each given by what it lacks; nothing where there are none."""
    counts: Counter[str] = Counter()
    modules: dict[str, set[str]] = {}
    for lacking in left:
        command = next((command for command, known in IN_SESSIONS.items() if lacking & known), IN_VENV)
        counts[command] += 1
        modules.setdefault(command, set()).update(lacking)
    parts = (
        f"{count} for want of {', '.join(sorted(modules[command]))}: {command}" for command, count in counts.items()
    )
    return f"not selected: {'; '.join(parts)}" if left else ""
