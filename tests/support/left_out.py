"""Tests that a plugin leaves out are deselected, and a line at the end says which: it comes from the workers of xdist.

A plugin of pytest.
"""

from collections.abc import Collection
from typing import Any

import pytest

LINES = pytest.StashKey[list[str]]()
SENT = "left_out"


def leave_out(config: pytest.Config, items: list[pytest.Item], left: Collection[pytest.Item], line: str) -> None:
    """Deselects tests; a line that is not empty is printed at the end, once for all workers."""
    if gone := set(left):
        config.hook.pytest_deselected(items=[*gone])
        items[:] = [item for item in items if item not in gone]
    add(config, [line] if line else [])
    getattr(config, "workeroutput", {})[SENT] = config.stash[LINES]


def add(config: pytest.Config, lines: Collection[str]) -> None:
    known = config.stash.setdefault(LINES, [])
    known += [line for line in lines if line not in known]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    add(node.config, getattr(node, "workeroutput", {}).get(SENT, ()))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash.get(LINES, []):
        terminalreporter.write_line(line)
