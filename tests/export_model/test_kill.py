"""Processes that are stopped at every line by which a bundle is put in place."""

import json
import os
import sys
import tempfile
from pathlib import Path

import killing
import pytest
from bundles import finished
from environments import with_support
from interrupts import heeding_interrupts


@pytest.fixture
def place():
    """Return a folder, in memory where that is possible: hundreds of kills wait for the disk otherwise."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork; CI runs Linux")


@pytest.mark.slow
def test_bundle_is_whole_after_a_stop_at_any_line(place, random_seed, pytestconfig):
    points = pytestconfig.getoption("--kills")
    with heeding_interrupts():
        done = finished(sys.executable, killing.__file__, place, random_seed, points, timeout=600, env=with_support())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["problems"], found
    assert found["points"] > 1000
    assert {"a bundle, exchanges: a", "a bundle, exchanges: b", "nothing, exchanges: absent"} <= set(found["found"])
    assert "a bundle, exchanges: absent" not in found["found"]
