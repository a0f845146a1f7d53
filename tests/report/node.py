"""Node and the packages in web/node_modules, for tests that need both.

A test that needs Node or the packages and does not find them fails: otherwise a broken set-up would pass.
"""

import functools
import shutil
from pathlib import Path

import pytest
from bundles import finished

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"


@functools.cache
def node_program():
    """Return Node's program; fail where it, or what it needs, is missing."""
    program = shutil.which("node")
    if program is None:
        pytest.fail("These tests need Node.js 20.12 or newer, which is not installed.", pytrace=False)
    if not (WEB / "node_modules" / ".complete").is_file():
        pytest.fail("These tests need web/node_modules. `nox -s web` brings it.", pytrace=False)
    return program


def node(*arguments, cwd=WEB):
    return finished(node_program(), *arguments, cwd=cwd)
