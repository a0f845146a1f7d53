"""A plugin of pytest: what others leave out is deselected, and a line at the end says which, once for all workers."""

import pytest

LINES = pytest.StashKey[list[str]]()
SENT = "left_out"


def leave_out(config, items, left, line):
    """Deselects tests; a line that is not empty is printed at the end, once for all workers."""
    if gone := set(left):
        config.hook.pytest_deselected(items=[*gone])
        items[:] = [item for item in items if item not in gone]
    add(config, [line] if line else [])
    getattr(config, "workeroutput", {})[SENT] = config.stash[LINES]


def add(config, lines):
    known = config.stash.setdefault(LINES, [])
    known += [line for line in lines if line not in known]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    add(node.config, getattr(node, "workeroutput", {}).get(SENT, ()))


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash.get(LINES, []):
        terminalreporter.write_line(line)
